"""The caps of a profile on given hardware.

Percent of the maximum, or watts where the settings say so. Watts come with percent, because twins
and scores work with percent: of the maximum, or of the one that is assumed. None means no cap.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec

from joulie_bus.events import HardwareDiscovered, Profile
from joulie_operator.planning.rules import Rules
from joulie_projections.hardware.catalog import Catalog
from joulie_projections.hardware.models import CardName, card_name
from joulie_projections.state.state import NodeState
from joulie_projections.twin.twin import hardware_of, node_cards


class WattRange(NamedTuple):
    """The range of caps that a socket or a card accepts. A low of 0 means unknown."""

    low: float
    high: float

    def clamped(self, watts: float) -> float:
        return min(self.high, max(self.low, watts))


class Caps(NamedTuple):
    """The caps of a node; None means no cap."""

    cpu_pct: int | None = None
    gpu_pct: int | None = None
    cpu_mw_per_socket: int | None = None
    gpu_mw: int | None = None  # per card


class ModelCaps(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The cap range of a GPU model, from the settings."""

    max_cap_watts: float
    min_cap_watts: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_cap_watts <= self.max_cap_watts:
            raise ValueError("minCapWatts must lie between 0 and maxCapWatts")


def caps_for(profile: Profile, node: NodeState, rules: Rules) -> Caps:
    cpu_pct, cpu_mw = _cpu(profile, node, rules)
    gpu_pct, gpu_mw = _gpu(profile, node, rules)
    return Caps(cpu_pct, gpu_pct, cpu_mw, gpu_mw)


def current_caps(node: NodeState) -> Caps:
    return Caps(node.cpu_cap_pct, node.gpu_cap_pct, node.cpu_cap_mw_per_socket, node.gpu_cap_mw)


def _cpu(profile: Profile, node: NodeState, rules: Rules) -> tuple[int | None, int | None]:
    performs = profile == "performance"
    if not rules.cpu_absolute:
        return (rules.cpu_performance_pct if performs else rules.cpu_eco_pct), None
    watts = rules.cpu_performance_w if performs else rules.cpu_eco_w
    found = node.hardware
    if found is None or not found.cpu_max_mw_per_socket:
        return _of_guess(watts, node), _milliwatts(watts)  # the agent fits them in
    clamped = cpu_range(found).clamped(watts)
    # Percent of the socket's own maximum; some models accept caps above it.
    return min(100, _percent(clamped, found.cpu_max_mw_per_socket / 1000)), _milliwatts(clamped)


def _of_guess(watts: float, node: NodeState) -> int | None:
    """Percent of the maximum that twins assume, so that budgets follow the watts."""
    assumed_w, found = hardware_of(node).cpu_max_w, node.hardware
    if not assumed_w:
        return None
    sockets = found.cpu_sockets if found is not None else 1
    return max(1, min(100, _percent(watts * max(1, sockets), assumed_w)))


def cpu_range(found: HardwareDiscovered) -> WattRange:
    """The range that the node reports, else the catalog's range in its description."""
    high = max(found.cpu_max_mw_per_socket, found.figures.cpu_cap_mw_per_socket)
    return WattRange(found.cpu_min_mw_per_socket / 1000, high / 1000)


def _gpu(profile: Profile, node: NodeState, rules: Rules) -> tuple[int | None, int | None]:
    percent = rules.gpu_performance_pct if profile == "performance" else rules.gpu_eco_pct
    found = node.hardware
    if percent is None or not node_cards(node):
        return None, None
    limits = gpu_range(node, rules.gpu_models) if rules.gpu_absolute else None
    if limits is None or found is None:
        return percent, None
    watts = limits.clamped(limits.high * percent / 100)
    most_w = found.gpu_max_mw / 1000 or limits.high  # the base of all percentages
    return min(100, _percent(watts, most_w)), _milliwatts(watts)


def gpu_range(node: NodeState, models: str) -> WattRange | None:
    """The range that the node reports, else the settings' range, else the catalog's."""
    found = node.hardware
    if found is None:
        return None
    configured = caps_of(models).get(card_name(found.gpu_model))
    if configured is not None and (found.gpu_by_catalog or not found.gpu_max_mw):
        return WattRange(configured.min_cap_watts, configured.max_cap_watts)
    if not found.gpu_max_mw:
        return None
    return WattRange(found.gpu_min_mw / 1000, found.gpu_max_mw / 1000)


def model_caps(text: str) -> dict[str, ModelCaps]:
    """JSON that names models: {"NVIDIA L4": {"minCapWatts": 40, "maxCapWatts": 72}}"""
    named = msgspec.json.decode(text, type=dict[str, ModelCaps])
    caps_by_card(named)
    return named


def caps_by_card(named: Mapping[str, ModelCaps]) -> dict[CardName, ModelCaps]:
    """By model, however it is spelled. Raises ValueError if one model has two ranges."""
    found, spelled = dict[CardName, ModelCaps](), dict[CardName, str]()
    for name, caps in named.items():
        model = card_name(name)
        if model in spelled and found[model] != caps:
            raise ValueError(f"{spelled[model]!r} and {name!r} are one model with two ranges")
        found[model], spelled[model] = caps, name
    return found


def under_catalog_names(text: str, catalog: Catalog) -> str:
    """The same JSON with the catalog's names, which descriptions of nodes use: the caps of
    `NVIDIA H100 80GB HBM3` are those of `NVIDIA H100 SXM5`. Raises ValueError as `caps_by_card`.
    """
    named = model_caps(text)
    renamed = [(catalog.gpu_name(name), caps) for name, caps in named.items()]
    found: dict[str, ModelCaps] = {}
    for (model, caps), name in zip(renamed, named, strict=True):
        if found.setdefault(model, caps) != caps:
            raise ValueError(f"{name!r} is {model!r}, for which another range is given, too")
    return text if list(found) == list(named) else msgspec.json.encode(found).decode()


@lru_cache(maxsize=4)
def caps_of(text: str) -> dict[CardName, ModelCaps]:
    return caps_by_card(model_caps(text))


def _percent(watts: float, high: float) -> int:
    """Rounded down, so that computed power never exceeds the cap."""
    return _milliwatts(watts) * 100 // _milliwatts(high) if high else 100


def _milliwatts(watts: float) -> int:
    return round(watts * 1000)
