"""The terms of the energy score, in watts."""

from dataclasses import dataclass

from joulie_projections.twin.energy_score import FORMULA


@dataclass(frozen=True, kw_only=True)
class EnergyWeights:
    energy_formula: float = FORMULA
