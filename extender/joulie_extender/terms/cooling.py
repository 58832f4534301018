"""The cooling stress of a node; its reserve adds to the score."""

from dataclasses import dataclass

from joulie_bus.core.setting_fields import choice, number, setting
from joulie_projections.twin.cooling import model_names


def a_cooling_model(name: str) -> str:
    """linear, tdp-ratio, or the name of an entry point of joulie.cooling_models"""
    if name not in model_names():
        raise ValueError(f"no such model; installed are {', '.join(model_names())}")
    return name


@dataclass(frozen=True, kw_only=True)
class CoolingSettings:
    cooling: float = setting(
        number(0, 10), "SCORE_COOLING_WEIGHT", "0.15", "Weight of the cooling reserve"
    )
    cooling_model: str = setting(
        a_cooling_model,
        "COOLING_MODEL",
        "linear",
        "Function that computes the cooling stress of a node from its power and the room "
        "temperature",
    )
    cooling_power: str = setting(
        choice("cap", "measured"),
        "COOLING_POWER",
        "cap",
        "Power that the cooling model uses: the caps, or the newest reading",
    )
