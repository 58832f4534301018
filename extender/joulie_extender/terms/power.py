"""The watts that the pod adds to a node, and those of pods that no reading includes yet."""

from dataclasses import dataclass

import numpy as np

from joulie_bus.core.setting_fields import boolean, number, setting
from joulie_extender.terms.freshness import ScoreBasis
from joulie_extender.terms.term import Nodes, Term, TermInput
from joulie_projections.twin.arrays import Floats
from joulie_projections.twin.power import Coefficients


@dataclass(frozen=True, kw_only=True)
class CoefficientSettings:
    cpu: float = setting(
        number(0, 2),
        "MARGINAL_CPU_UTIL_COEFF",
        "0.7",
        "Share of the requested CPU power that a pod is assumed to draw",
        section="scores",
    )
    gpu_standard: float = setting(
        number(0, 2),
        "MARGINAL_GPU_UTIL_COEFF_STANDARD",
        "0.65",
        "Share of the requested GPU power that a standard pod is assumed to draw",
        section="scores",
    )
    gpu_performance: float = setting(
        number(0, 2),
        "MARGINAL_GPU_UTIL_COEFF_PERFORMANCE",
        "0.85",
        "Share of the requested GPU power that a performance pod is assumed to draw",
        section="scores",
    )

    @property
    def coefficients(self) -> Coefficients:
        return Coefficients(self.cpu, self.gpu_standard, self.gpu_performance)


@dataclass(frozen=True, kw_only=True)
class PowerWeights:
    coefficients: Coefficients = Coefficients()


@dataclass(frozen=True, kw_only=True)
class FacilitySettings:
    facility: bool = setting(
        boolean,
        "ENABLE_FACILITY_METRICS",
        "false",
        "Multiply the watts of a pod by the PUE of the facility, where it is polled",
    )


def _assumed(nodes: Nodes, settings: PowerWeights) -> Floats:
    arrivals = nodes.twin_columns.arrivals_w(settings.coefficients)
    measured = nodes.basis == ScoreBasis.MEASURED
    return np.where(measured, arrivals, nodes.twin_columns.pods_w(settings.coefficients))


def _cost_factor(nodes: Nodes, _: FacilitySettings) -> Floats:
    """Watts including cooling, per watt."""
    dearer = np.maximum(1.0, nodes.twin_columns.floats("pue"))
    return np.where(nodes.twin_columns.columns["is_polled"], dearer, 1.0)


class AddedPower(Term[FacilitySettings]):
    name = "marginal_w"
    head = "added watts"
    unit = "watts"
    meaning = "The power that the pod would add to the node; the headroom counts it"
    settings = FacilitySettings
    columns = (("cost_factor", _cost_factor),)
    is_summand = False

    def value(self, asked: TermInput, settings: FacilitySettings) -> Floats:
        watts = asked.marginal_power.of(asked.pod, asked.rows)
        if settings.facility:
            watts *= asked.column("cost_factor")
        return watts


class AssumedPower(Term[PowerWeights]):
    name = "assumed_w"
    unit = "watts"
    meaning = "The modelled power of pods that no reading includes yet; the headroom counts it"
    settings = PowerWeights
    columns = (("assumed_w", _assumed),)
    is_summand = False

    def value(self, asked: TermInput, _: PowerWeights) -> Floats:
        return asked.column("assumed_w")
