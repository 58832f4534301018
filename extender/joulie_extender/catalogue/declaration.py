"""The settings of a decision, as the log declares them: written once, read by each replay."""

import hashlib
from dataclasses import fields
from typing import Any

import msgspec

from joulie_bus.core.formats import in_force
from joulie_bus.events import SettingsDeclared
from joulie_extender.catalogue.rules import RULES
from joulie_extender.catalogue.terms import TERMS
from joulie_extender.catalogue.weights import Weights
from joulie_extender.gpu.fit import GpuWeights
from joulie_extender.gpu.models import read, written
from joulie_extender.terms import preferences
from joulie_projections.twin import capacity_reserve
from joulie_projections.twin.energy_score import FORMULA
from joulie_projections.twin.power import Coefficients

CODE_VERSION = f"joulie/{in_force('answers')}"  # replay reports a different version first
Value = float | str | bool

# Settings that were added later: omitted while they have the values that older entries imply, so
# that the ids of their settings stay the same.
_BEFORE: dict[str, Value] = {
    **dict(pair for rule in RULES for pair in rule.before),
    **dict(pair for term in TERMS for pair in term.before),
}


def settings_id(weights: Weights) -> str:
    """Computed once for a set of weights: every decision has it."""
    kept = weights.memo.get("id")
    if kept is None:
        body = msgspec.json.encode(values_of(weights), order="deterministic")
        kept = weights.memo["id"] = hashlib.sha256(body).hexdigest()[:16]
    return kept


def values_of(weights: Weights) -> dict[str, Value]:
    values: dict[str, Any] = {each.name: getattr(weights, each.name) for each in fields(weights)}
    coefficients, gpu = values.pop("coefficients"), values.pop("gpu")
    preferred = preferences.written(values.pop("preferences"))
    named = {f"coefficient_{name}": value for name, value in coefficients._asdict().items()}
    cards = {f"gpu_{name}": value for name, value in gpu._asdict().items()}
    texts = {
        "gpu_aliases": written(gpu.aliases),
        "preferences": preferred,
        "capacity_reserve": capacity_reserve.written(values.pop("reserve")),
    }
    whole = {**values, **named, **cards, **texts}
    return {name: value for name, value in whole.items() if _BEFORE.get(name) != value}


def weights_of(declared: SettingsDeclared) -> Weights | None:
    """The inverse of `values_of`: the weights that a replica declared in the log. None if newer
    code declared values or a formula that this code does not know, as after a rollback.
    """
    values: dict[str, Any] = {**_BEFORE, **declared.values}
    aliases = read(str(values.pop("gpu_aliases", "")))
    preferred = preferences.read(str(values.pop("preferences", "")))
    kept = str(values.pop("capacity_reserve", ""))
    if values.get("energy_formula") != FORMULA:
        return None
    try:
        nested: dict[str, Any] = {
            "coefficients": Coefficients(**_taken(values, "coefficient_")),
            "gpu": GpuWeights(**_taken(values, "gpu_"), aliases=aliases),
            "preferences": preferred,
            "reserve": capacity_reserve.capacity_reserve(kept),
        }
        return Weights(**values, **nested)
    except (TypeError, ValueError):  # an argument without a parameter, or an unknown reserve
        return None


def _taken(values: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Moves the values with this prefix out of `values`; the prefix is dropped."""
    keys = [key for key in values if key.startswith(prefix)]
    return {key.removeprefix(prefix): values.pop(key) for key in keys}


def declaration(weights: Weights) -> SettingsDeclared:
    return SettingsDeclared(
        settings=settings_id(weights), code=CODE_VERSION, values=values_of(weights)
    )
