"""Every number that rules and terms use, composed of their settings."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from joulie_bus.core.setting_fields import choice, preset_number, setting
from joulie_bus.runtime.presets import HEADROOM, PRESET, PRESET_DOC, preset
from joulie_extender.gpu.fit import PackingWeights
from joulie_extender.rules.node_class import StaleClassSettings
from joulie_extender.rules.reserve import ReserveSettings
from joulie_extender.staleness import FreshnessSettings
from joulie_extender.terms.cards_kept import CardsKeptSettings
from joulie_extender.terms.class_points import ClassPointsSettings
from joulie_extender.terms.cooling import CoolingSettings
from joulie_extender.terms.energy import EnergyWeights
from joulie_extender.terms.gang import GangSettings
from joulie_extender.terms.headroom import HeadroomSettings
from joulie_extender.terms.packing import DevicesSettings
from joulie_extender.terms.power import FacilitySettings
from joulie_extender.terms.preferences import PreferenceWeights
from joulie_extender.terms.trend import TrendSettings


def highest_score(text: str) -> float:
    """one of 100, 10"""
    if text not in ("100", "10"):
        raise ValueError("unknown")
    return float(text)


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(
    StaleClassSettings,
    ReserveSettings,
    FreshnessSettings,
    HeadroomSettings,
    CoolingSettings,
    TrendSettings,
    ClassPointsSettings,
    FacilitySettings,
    CardsKeptSettings,
    DevicesSettings,
    GangSettings,
):
    """The settings whose values a declaration in the log has under the same names."""

    preset: str = setting(preset, PRESET, HEADROOM, PRESET_DOC)  # scores do not depend on it
    scoring: str = preset_number(
        choice("headroom", "energy"),
        "scoring",
        "headroom",
        "Way to score: by the power headroom of the node, or by the watts that the pod adds",
        "scores",
    )
    score_range: float = preset_number(
        highest_score, "score_range", "100", "Highest score that is answered", "scores"
    )


@dataclass(frozen=True, kw_only=True)
class Weights(ScoreSettings, EnergyWeights, PackingWeights, PreferenceWeights):
    """What a decision was made with; each decision records the id of the whole set."""

    @cached_property
    def memo(self) -> dict[str, str]:
        """What is computed once for these weights."""
        return {}

    @cached_property
    def _hash(self) -> int:
        return tuple(getattr(self, each.name) for each in fields(self)).__hash__()

    def __hash__(self) -> int:
        """Computed once: every answer looks up what is kept for its weights."""
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        """Without the hash: in another process the same text has another one."""
        return {each.name: getattr(self, each.name) for each in fields(self)}
