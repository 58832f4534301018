"""Points for the class of a node; they affect pods of class standard only."""

from dataclasses import dataclass

from joulie_bus.core.setting_fields import number, setting


@dataclass(frozen=True, kw_only=True)
class ClassPointsSettings:
    eco_bonus: float = setting(
        number(0, 100), "SCORE_ECO_BONUS", "10", "Points for a standard pod on an eco node"
    )
    pressure: float = setting(
        number(0, 10),
        "SCORE_PRESSURE_WEIGHT",
        "0.3",
        "Weight of the pressure on performance nodes, for standard pods",
    )
    draining_penalty: float = setting(
        number(0, 100),
        "DRAINING_PENALTY",
        "20",
        "Points subtracted for a standard pod on a draining node; 0 is the published formula",
    )
