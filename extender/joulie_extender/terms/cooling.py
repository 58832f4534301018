"""The cooling stress of a node; its reserve adds to the score."""

from dataclasses import dataclass

import numpy as np

from joulie_bus.core.setting_fields import preset_number
from joulie_extender.terms.term import Amount, Nodes, Term, TermInput
from joulie_projections.twin.arrays import Floats
from joulie_projections.twin.cooling import Heat, model_named, model_names, stress


def a_cooling_model(name: str) -> str:
    """linear, tdp-ratio, or the name of an entry point of joulie.cooling_models"""
    if name not in model_names():
        raise ValueError(f"no such model; installed are {', '.join(model_names())}")
    return name


@dataclass(frozen=True, kw_only=True)
class CoolingSettings:
    cooling: float = 0.15  # the weight of the cooling reserve
    cooling_model: str = preset_number(
        a_cooling_model,
        "cooling_model",
        "linear",
        "Function that computes the cooling stress of a node from its power and the room "
        "temperature",
        "scores",
    )
    cooling_power: str = "cap"  # "measured" in logs of versions up to 0.2.0 that asked for it


def _stress(nodes: Nodes, settings: CoolingSettings) -> Floats:
    """Precomputed, unless the settings name another model."""
    twin_columns = nodes.twin_columns
    if _is_linear(settings):
        return twin_columns.floats("cooling")
    power = twin_columns.floats("capped_w")
    if settings.cooling_power == "measured":
        power = np.where(nodes.read, twin_columns.floats("measured_w"), power)
    heat = Heat(power, twin_columns.floats("tdp_w"), twin_columns.floats("ambient_c"))
    return stress(model_named(settings.cooling_model), heat)


def _predicted(nodes: Nodes, settings: CoolingSettings) -> Floats:
    """Headroom by caps and cooling alone."""
    if _is_linear(settings):
        return nodes.twin_columns.floats("headroom")
    return nodes.twin_columns.predicted_headroom(nodes.column("cooling"))


def _is_linear(settings: CoolingSettings) -> bool:
    return (settings.cooling_model, settings.cooling_power) == ("linear", "cap")


class Cooling(Term[CoolingSettings]):
    name = "cooling"
    head = "cooling"
    unit = "percent"
    meaning = "The cooling stress of the node; what is left of 100 adds to the score"
    settings = CoolingSettings
    columns = (("cooling", _stress), ("predicted", _predicted))

    def value(self, asked: TermInput, _: CoolingSettings) -> Floats:
        return asked.column("cooling")

    def points(self, value: Amount, settings: CoolingSettings) -> Amount:
        return settings.cooling * (100 - value)
