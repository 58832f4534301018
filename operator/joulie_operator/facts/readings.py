"""Computes the power of whole nodes from the series of exporters.

RAPL zones overlap, so that a plain sum would count watts twice:

    platform (BMC)   the whole machine, cards included
    psys             packages, memory and the rest of the board; no cards
    package          one per socket; contains core and uncore
    dram             not part of package
    cards            part of platform only

The power of a node is its platform's; else psys, or packages and memory, plus its cards. A partial
reading is dropped: without its cards a GPU node would look nearly idle.
"""

import math
import re
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

PLATFORM = "kepler_platform_watts"
ZONES = "kepler_node_cpu_watts"  # Kepler from 0.10 on: one series per zone and sensor
CARDS = "DCGM_FI_DEV_POWER_USAGE"
# Kepler up to 0.9: counters of joules, in two modes that are added.
OLD_PLATFORM = "rate(kepler_node_platform_joules_total[1m])"
OLD_PACKAGE = "rate(kepler_node_package_joules_total[1m])"
OLD_DRAM = "rate(kepler_node_dram_joules_total[1m])"
QUERIES = (PLATFORM, ZONES, CARDS, OLD_PLATFORM, OLD_PACKAGE, OLD_DRAM)

# Labels that may name the node, the most reliable first. DCGM's Hostname may name its pod.
NODE_LABELS = ("node_name", "node", "kubernetes_node", "exported_node", "Hostname", "instance")
_INDEX = "index "  # before the number of a card without a UUID
_SOCKET = re.compile(r"-\d+$")  # package-0 is the package of socket 0


class Series(NamedTuple):
    """One result of an instant query."""

    labels: Mapping[str, str]
    value: float


class Reading(NamedTuple):
    """The power of one node."""

    watts: float
    provider: str  # the exporters that it comes from
    cards: Mapping[str, float] = {}  # watts by UUID


Sensors = dict[str, dict[str, float]]  # of one node: zone -> sensor -> watts


def whole_nodes(
    found: Mapping[str, Sequence[Series]], cards_of: Mapping[str, int]
) -> dict[str, Reading]:
    """Readings by node. `cards_of` maps each known node to its number of cards."""
    sensors: dict[str, Sensors] = defaultdict(lambda: defaultdict(dict))
    for query, series in found.items():
        for each in series:
            node = node_of(each.labels, cards_of)
            if node and math.isfinite(each.value) and each.value >= 0:
                _note(sensors[node], query, each)
    readings = {node: _whole(of, cards_of[node]) for node, of in sensors.items()}
    return {node: reading for node, reading in readings.items() if reading is not None}


def node_of(labels: Mapping[str, str], known: Container[str]) -> str:
    """The first label that names a known node, with or without a port."""
    for label in NODE_LABELS:
        value = labels.get(label, "")
        for name in (value, value.rpartition(":")[0]):
            if name and name in known:
                return name
    return ""


def _note(sensors: Sensors, query: str, series: Series) -> None:
    """Counts each sensor once: during a rollout two exporters may report it."""
    zone, sensor = _place(query, series.labels)
    known = sensors[zone].get(sensor, 0.0)
    sensors[zone][sensor] = max(known, series.value)


def _place(query: str, labels: Mapping[str, str]) -> tuple[str, str]:
    match query:
        case "kepler_node_cpu_watts":
            zone = labels.get("zone", "")
            return _SOCKET.sub("", zone), f"{zone} {labels.get('path', '')}"
        case "DCGM_FI_DEV_POWER_USAGE":  # MIG slices report the watts of the whole card
            return "cards", labels.get("UUID") or f"{_INDEX}{labels.get('gpu', '')}"
        case "kepler_platform_watts":
            return "platform", labels.get("chassis_id", "")
        case _:
            zone = query.removeprefix("rate(kepler_node_").partition("_")[0]
            return f"old {zone}", f"{labels.get('package', '')} {labels.get('mode', '')}"


def _whole(of: Sensors, cards: int) -> Reading | None:
    shown = of.get("cards", {})
    named = {name: watts for name, watts in shown.items() if not name.startswith(_INDEX)}
    if of.get("platform"):  # of a multi-node chassis
        return Reading(max(of["platform"].values()), "kepler platform", named)
    if of.get("old platform"):
        return Reading(sum(of["old platform"].values()), "kepler platform", named)
    board = _board(of)
    if board is None or len(shown) < cards:
        return None
    if not shown:
        return board
    return Reading(board.watts + sum(shown.values()), f"{board.provider}, dcgm", named)


def _board(of: Sensors) -> Reading | None:
    if of.get("psys"):
        return Reading(max(of["psys"].values()), "kepler psys")
    for package, dram in (("package", "dram"), ("old package", "old dram")):
        if of.get(package):
            watts = sum(of[package].values()) + sum(of.get(dram, {}).values())
            return Reading(watts, "kepler package")
    return None
