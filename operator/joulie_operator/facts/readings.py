"""Computes the power of whole nodes from the series of exporters.

RAPL zones overlap, so that a plain sum would count watts twice:

    platform (BMC)   the whole machine, cards included
    psys             packages, memory and the rest of the board; no cards
    package          one per socket; contains core and uncore
    dram             not part of package
    cards            part of platform only

The power of a node is its platform's; else psys, or packages and memory, plus its cards. A partial
reading is dropped: without its cards a GPU node would look nearly idle.

Counters of energy are read beside the power, of the same sensors. A sum of counters that lacks a
sensor is none.
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
COUNTED_OLD = tuple(f"kepler_node_{each}_joules_total" for each in ("platform", "package", "dram"))
OLD_PLATFORM, OLD_PACKAGE, OLD_DRAM = (f"rate({counter}[1m])" for counter in COUNTED_OLD)
POWERS = (PLATFORM, ZONES, CARDS, OLD_PLATFORM, OLD_PACKAGE, OLD_DRAM)
# Counters: joules of Kepler, millijoules of DCGM. Kepler has none of a platform from 0.10 on.
COUNTED_ZONES = "kepler_node_cpu_joules_total"
COUNTED_CARDS = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
_UJ = dict.fromkeys((COUNTED_ZONES, *COUNTED_OLD), 1e6) | {COUNTED_CARDS: 1e3}
QUERIES = (*POWERS, *_UJ)

# Labels that may name the node, the most reliable first. DCGM's Hostname may name its pod.
NODE_LABELS = ("node_name", "node", "kubernetes_node", "exported_node", "Hostname", "instance")
_INDEX = "index "  # before the number of a card without a UUID
_SOCKET = re.compile(r"-\d+$")  # package-0 is the package of socket 0


class Series(NamedTuple):
    """One result of an instant query."""

    labels: Mapping[str, str]
    value: float


Counter = Mapping[str, float]  # microjoules of each sensor that a meter adds up
NODE = ""  # the key of the counter of all that is not a card


class Reading(NamedTuple):
    """The power of one node."""

    watts: float
    provider: str  # the exporters that it comes from
    cards: Mapping[str, float] = {}  # watts by UUID
    cards_are_added: bool = False  # to the board; otherwise one meter covers both
    counters: Mapping[str, Counter] = {}  # by UUID, and NODE


Sensors = dict[str, dict[str, float]]  # of one node: zone -> sensor -> watts


class Exported(NamedTuple):
    """What exporters show of one node."""

    watts: Sensors
    counters: dict[str, dict[str, dict[str, float]]]  # zone -> sensor -> series -> microjoules


def _nothing() -> Exported:
    return Exported(defaultdict(dict), defaultdict(lambda: defaultdict(dict)))


def whole_nodes(
    found: Mapping[str, Sequence[Series]], cards_of: Mapping[str, int]
) -> dict[str, Reading]:
    """Readings by node. `cards_of` maps each known node to its number of cards."""
    exported: dict[str, Exported] = defaultdict(_nothing)
    for query, series in found.items():
        for each in series:
            node = node_of(each.labels, cards_of)
            if node and math.isfinite(each.value) and each.value >= 0:
                _note(exported[node], query, each)
    readings = {node: _whole(of, cards_of[node]) for node, of in exported.items()}
    return {node: reading for node, reading in readings.items() if reading is not None}


def node_of(labels: Mapping[str, str], known: Container[str]) -> str:
    """The first label that names a known node, with or without a port."""
    for label in NODE_LABELS:
        value = labels.get(label, "")
        for name in (value, value.rpartition(":")[0]):
            if name and name in known:
                return name
    return ""


def _note(exported: Exported, query: str, series: Series) -> None:
    """Counts each sensor once: during a rollout two exporters may report it."""
    zone, sensor = _place(query, series.labels)
    if query in _UJ:
        # Each exporter has a counter of its own; that of a card is the driver's.
        name = "" if zone == "cards" else str(sorted(series.labels.items()))
        of_sensor = exported.counters[zone][sensor]
        of_sensor[name] = max(of_sensor.get(name, 0.0), series.value * _UJ[query])
    else:
        known = exported.watts[zone].get(sensor, 0.0)
        exported.watts[zone][sensor] = max(known, series.value)


def _place(query: str, labels: Mapping[str, str]) -> tuple[str, str]:
    match query:
        case "kepler_node_cpu_watts" | "kepler_node_cpu_joules_total":
            zone = labels.get("zone", "")
            return _SOCKET.sub("", zone), f"{zone} {labels.get('path', '')}"
        # MIG slices report the watts of the whole card
        case "DCGM_FI_DEV_POWER_USAGE" | "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION":
            return "cards", labels.get("UUID") or f"{_INDEX}{labels.get('gpu', '')}"
        case "kepler_platform_watts":
            return "platform", labels.get("chassis_id", "")
        case _:
            zone = query.removeprefix("rate(").removeprefix("kepler_node_").partition("_")[0]
            return f"old {zone}", f"{labels.get('package', '')} {labels.get('mode', '')}"


def _whole(of: Exported, cards: int) -> Reading | None:
    card_watts = of.watts.get("cards", {})
    named = {name: watts for name, watts in card_watts.items() if not name.startswith(_INDEX)}
    counters: dict[str, Counter] = {
        name: counted for name, counted in of.counters["cards"].items() if name in named
    }
    if of.watts.get("platform"):  # of a multi-node chassis
        watts = max(of.watts["platform"].values())
        return Reading(watts, "kepler platform", named, counters=counters)
    if of.watts.get("old platform"):
        watts, counted = sum(of.watts["old platform"].values()), _counted(of, "old platform")
        return Reading(watts, "kepler platform", named, counters={**counted, **counters})
    board = _board(of)
    if board is None or len(card_watts) < cards:
        return None
    if not card_watts:
        return board
    if len(named) == len(card_watts):  # a card without a UUID counts with the board
        counters |= board.counters
    return Reading(
        board.watts + sum(card_watts.values()), f"{board.provider}, dcgm", named, True, counters
    )


def _board(of: Exported) -> Reading | None:
    if psys := of.watts.get("psys"):
        counters = _counted(of, "psys") if len(psys) == 1 else {}
        return Reading(max(psys.values()), "kepler psys", counters=counters)
    for package, dram in (("package", "dram"), ("old package", "old dram")):
        if of.watts.get(package):
            watts = sum(of.watts[package].values()) + sum(of.watts.get(dram, {}).values())
            return Reading(watts, "kepler package", counters=_counted(of, package, dram))
    return None


def _counted(of: Exported, *zones: str) -> dict[str, Counter]:
    """The counters of all sensors of which these zones have power; else none."""
    found: dict[str, float] = {}
    for zone in zones:
        for sensor in of.watts.get(zone, {}):
            series = of.counters[zone][sensor]
            if len(series) != 1:  # not counted, or by two exporters
                return {}
            found |= {f"{zone} {sensor} {name}": uj for name, uj in series.items()}
    return {NODE: found}
