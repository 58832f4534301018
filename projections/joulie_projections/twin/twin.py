"""The twin of one node: hardware, caps and power, derived from the node's state."""

from collections.abc import Iterable
from enum import IntEnum
from operator import mul
from typing import NamedTuple

import msgspec
import numpy as np

from joulie_projections.hardware.card_power import CURVES, CardPower
from joulie_projections.hardware.guesses import guessed_cpu_max_w, guessed_gpu_max_w
from joulie_projections.pods.classify import PROFILE_LABEL
from joulie_projections.pods.load import NO_LOAD, Load, total_of
from joulie_projections.state.state import NodeState, Sample
from joulie_projections.twin.cooling import Heat, linear
from joulie_projections.twin.facility import ZONE_LABEL, Halls
from joulie_projections.twin.power import NodeWatts, load_w

DRAINING_LABEL = "joulie.io/draining"
MIN_TREND_SPAN_MS = 6_000  # a trend needs readings over at least this span


class NodeClass(IntEnum):
    UNKNOWN = 0
    PERFORMANCE = 1
    ECO = 2
    DRAINING = 3


class Source(IntEnum):
    """The source of a node's hardware figures."""

    NONE = 0
    ALLOCATABLE = 1  # estimated from allocatable resources
    DISCOVERED = 2


class TwinRow(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a twin that depends only on the node's state: one row of the columns."""

    present: bool  # exists in Kubernetes
    node_class: NodeClass
    eco_label: bool
    closed: bool  # to pods of class standard, for a power target
    at: int
    sampled_at: int
    measured_w: float
    trend_w_per_min: float
    cpu_cap_pct: int
    gpu_cap_pct: int  # the CPU cap for a node without GPUs
    capped_w: float
    tdp_w: float
    density: float
    cores: float
    cpu_max_w: float
    gpus: float
    gpu_max_w: float
    unit_milli: int  # of a card, that one of `gpus` is
    card_curve: int  # number of the measured curve of its cards in `CURVES`; 0: none
    hardware: Source
    hall: int
    daemons_only: bool  # pods run there, and none that would hold it awake
    # Power of the pods if every coefficient were 1 (`power.modelled_w`): of all pods ...
    pods_cpu_w: float
    pods_warm_cpu_w: float
    pods_gpu_standard_w: float
    pods_gpu_performance_w: float
    # ... and of pods that the last reading may not include.
    new_cpu_w: float
    new_warm_cpu_w: float
    new_gpu_standard_w: float
    new_gpu_performance_w: float


class ReadingColumns(NamedTuple):
    """The fields of a row that readings change."""

    at: int
    sampled_at: int
    measured_w: float
    trend_w_per_min: float
    new_cpu_w: float
    new_warm_cpu_w: float
    new_gpu_standard_w: float
    new_gpu_performance_w: float


class Twin(TwinRow, frozen=True, kw_only=True):
    """A row with the fields that depend on its hall."""

    ambient_c: float
    pue: float
    cooling: float  # by the linear model and the caps
    headroom: float  # predictedPowerHeadroomScore


class Hardware(NamedTuple):
    source: Source
    cores: float
    cpu_max_w: float
    gpus: float  # in units that pods request: cards, slices or shares
    gpu_max_w: float  # of one unit
    cards: float  # physical cards


NO_HARDWARE = Hardware(Source.NONE, 0.0, 0.0, 0.0, 0.0, 0.0)


def hardware_of(node: NodeState) -> Hardware:
    """Discovered hardware; else estimates from allocatable resources."""
    found = node.hardware
    if found is None:
        return _allocatable(node) if node.cpu_milli or node.gpus else NO_HARDWARE
    cores = node_cores(node)
    cpu_w = found.cpu_max_mw_per_socket * found.cpu_sockets / 1000
    vendor = found.gpu_vendor or (node.gpu_vendor if not found.gpu_model else "")
    gpu_w = found.gpu_max_mw / 1000 or guessed_gpu_max_w(found.gpu_model, vendor)
    gpus = GpuUnits(node_cards(node), gpu_w, node.gpu_units or node.gpus)
    return _in_units(Source.DISCOVERED, cores, cpu_w or guessed_cpu_max_w(cores), gpus)


def node_cores(node: NodeState) -> float:
    found = node.hardware
    return (float(found.cpu_cores) if found is not None else 0.0) or node.cpu_milli / 1000


def node_cards(node: NodeState) -> int:
    """Physical cards."""
    found = node.hardware
    return (found.gpu_count if found is not None else 0) or node.gpus


def _allocatable(node: NodeState) -> Hardware:
    cores = node.cpu_milli / 1000
    gpus = GpuUnits(node.gpus, guessed_gpu_max_w("", node.gpu_vendor), node.gpu_units)
    return _in_units(Source.ALLOCATABLE, cores, guessed_cpu_max_w(cores), gpus)


class GpuUnits(NamedTuple):
    cards: int
    card_w: float
    units: int  # allocatable


def _in_units(source: Source, cores: float, cpu_w: float, gpus: GpuUnits) -> Hardware:
    """Hardware in allocatable units: with more units than cards, each unit is a share of a card
    and of its power.
    """
    cards = float(gpus.cards)
    if gpus.units <= gpus.cards or not gpus.cards:
        return Hardware(source, cores, cpu_w, cards, gpus.card_w, cards)
    share_w = cards * gpus.card_w / gpus.units
    return Hardware(source, cores, cpu_w, float(gpus.units), share_w, cards)


def class_of(node: NodeState) -> NodeClass:
    if node.draining:
        return NodeClass.DRAINING
    match node.profile:
        case "performance":
            return NodeClass.PERFORMANCE
        case "eco":
            return NodeClass.ECO
        case _:
            return NodeClass.UNKNOWN


def current_profile(node: NodeState) -> str:
    """Empty while no plan has named the node. A draining node keeps its profile until it is empty;
    one whose first plan drains it has been a performance node until then."""
    return node.profile or ("performance" if node.draining else "")


def profile_labels(node: NodeState) -> dict[str, str]:
    """The labels of a node in Kubernetes; none while no plan has named it."""
    profile, draining = current_profile(node), "true" if node.draining else "false"
    return {PROFILE_LABEL: profile, DRAINING_LABEL: draining} if profile else {}


def twin_of(node: NodeState, halls: Halls) -> Twin:
    row = row_of(node, halls)
    hall = halls.halls[row.hall]
    values = (np.array([value]) for value in (row.capped_w, row.tdp_w, hall.ambient_c))
    cooling = float(linear(Heat(*values))[0])
    headroom = (row.cpu_cap_pct + row.gpu_cap_pct) / 200 * (1 - cooling / 100) * 100
    return Twin(
        **msgspec.structs.asdict(row),
        ambient_c=hall.ambient_c,
        pue=hall.pue,
        cooling=cooling,
        headroom=headroom,
    )


def caps_in_effect(node: NodeState) -> tuple[int, int]:
    """The caps of the processors and of the cards, in per cent of their maximum. What a writer on
    the node reports counts; without one, plans count as carried out."""
    if not node.applied_at or node.hardware is None:
        cpu, gpu = node.cpu_cap_pct, node.gpu_cap_pct
        return 100 if cpu is None else cpu, 100 if gpu is None else gpu
    found = node.hardware
    return (
        _in_per_cent(node.applied_cpu_mw, found.cpu_max_mw_per_socket),
        _in_per_cent(node.applied_gpu_mw, found.gpu_max_mw),
    )


def _in_per_cent(limit_mw: int | None, most_mw: int) -> int:
    return 100 if limit_mw is None or not most_mw else min(100, -(-limit_mw * 100 // most_mw))


def _of_cards_w(node: NodeState) -> float:
    """What the caps of single cards take from the budget of the node."""
    if not node.applied_card_mw or node.hardware is None:
        return 0.0
    most_mw = node.hardware.gpu_max_mw
    return sum(max(0, most_mw - each) for each in node.applied_card_mw.values()) / 1000


def row_of(node: NodeState, halls: Halls) -> TwinRow:
    hardware = hardware_of(node)
    cpu_cap, gpu_cap = caps_in_effect(node)
    gpus_w = hardware.gpu_max_w * hardware.gpus
    pods = load_on(node.load, hardware)
    return TwinRow(
        present=node.present,
        node_class=class_of(node),
        eco_label=node.labels.get(PROFILE_LABEL) == "eco",
        closed=node.closed_at > 0,
        cpu_cap_pct=cpu_cap,
        gpu_cap_pct=gpu_cap if hardware.gpus else cpu_cap,
        capped_w=hardware.cpu_max_w * cpu_cap / 100 + gpus_w * gpu_cap / 100 - _of_cards_w(node),
        tdp_w=hardware.cpu_max_w + gpus_w,
        density=_density(hardware),
        cores=hardware.cores,
        cpu_max_w=hardware.cpu_max_w,
        gpus=hardware.gpus,
        gpu_max_w=hardware.gpu_max_w,
        unit_milli=node.unit_milli,
        card_curve=_card_curve(node, hardware),
        hardware=hardware.source,
        hall=halls.number(node.labels.get(ZONE_LABEL, "")),
        daemons_only=0 < node.pods == node.daemon_pods,
        pods_cpu_w=pods.cpu,
        pods_warm_cpu_w=pods.warm_cpu,
        pods_gpu_standard_w=pods.gpu_standard,
        pods_gpu_performance_w=pods.gpu_performance,
        **_reading(node, hardware)._asdict(),
    )


def _card_curve(node: NodeState, hardware: Hardware) -> int:
    """A curve is of a whole card: a slice or a share has none."""
    if node.hardware is None or hardware.gpus != hardware.cards:
        return 0
    return CURVES.number(node.hardware.figures.gpu_curve_mw)


def curve_of(node: NodeState, hardware: Hardware) -> CardPower | None:
    number = _card_curve(node, hardware)
    return CURVES.curve(number) if number else None


def reading_of(node: NodeState) -> ReadingColumns:
    return _reading(node, hardware_of(node) if node.arrivals else NO_HARDWARE)


def _reading(node: NodeState, hardware: Hardware) -> ReadingColumns:
    last = node.samples[-1] if node.samples else None
    new = load_on(_arrived(node), hardware) if node.arrivals else _NO_WATTS
    return ReadingColumns(
        node.at,
        last.at if last else 0,
        last.power_mw / 1000 if last else 0.0,
        trend_w_per_min(node.samples),
        new.cpu,
        new.warm_cpu,
        new.gpu_standard,
        new.gpu_performance,
    )


def differs_only_in_readings(before: NodeState, after: NodeState) -> bool:
    """Reports whether the rows of the two states differ only in `ReadingColumns`."""
    with_readings = msgspec.structs.replace(
        before,
        at=after.at,
        samples=after.samples,
        source=after.source,
        provider=after.provider,
        arrivals=after.arrivals,
        idle_mw=after.idle_mw,
    )
    return with_readings == after and (before.at > 0) == (after.at > 0)


def _arrived(node: NodeState) -> Load:
    return total_of([arrival.load for arrival in node.arrivals])


_NO_WATTS = NodeWatts(0.0, 0.0, 0.0, 0.0)


def load_on(load: Load, on: Hardware) -> NodeWatts:
    """Power of pods if every coefficient were 1."""
    if on.source == Source.NONE or load == NO_LOAD:
        return _NO_WATTS
    return load_w(load, on.cores, on.cpu_max_w, on.gpus, on.gpu_max_w)


def _density(hardware: Hardware) -> float:
    cores, cards = min(1.0, hardware.cores / 192), min(1.0, hardware.cards / 8)
    return (cores + cards) / 2 * 100 if hardware.cards else cores * 100


def has_trend(samples: tuple[Sample, ...]) -> bool:
    """Whether the readings span enough time; else `trend_w_per_min` is 0."""
    return len(samples) > 1 and samples[-1].at - samples[0].at >= MIN_TREND_SPAN_MS * 1_000_000


def trend_w_per_min(samples: tuple[Sample, ...]) -> float:
    """The slope of a least-squares line through smoothed readings; robust against one outlier.

    All sums are integers, so the result does not depend on the order of additions.
    """
    if len(samples) < 2:
        return 0.0
    base = samples[0].at
    times = [(sample.at - base) // 1_000_000 for sample in samples]
    if times[-1] < MIN_TREND_SPAN_MS:
        return 0.0
    if len(samples) == 3:
        return _flattest_slope(times, [sample.power_mw for sample in samples])
    powers = _smoothed([sample.power_mw for sample in samples])
    n, sum_t, sum_p = len(times), sum(times), sum(powers)
    sum_tp = sum(map(mul, times, powers))
    spread = n * sum(map(mul, times, times)) - sum_t * sum_t
    # mW per ms is W per s
    return (n * sum_tp - sum_t * sum_p) * 60 / spread if spread else 0.0


def _flattest_slope(times: list[int], powers: list[int]) -> float:
    """The flattest slope between two of three readings; 0 if the slopes differ in sign.

    Any of the three may be an outlier. A steady slope is kept."""
    pairs = [(0, 1), (1, 2), (0, 2)]
    slopes = [
        (powers[b] - powers[a]) * 60 / (times[b] - times[a])
        for a, b in pairs
        if times[b] > times[a]
    ]
    if min(slopes) > 0:
        return min(slopes)
    return min(0.0, max(slopes))


def _smoothed(values: list[int]) -> list[int]:
    """Medians of three. The ends use an extrapolation of their neighbours as the third value.

    Repeating the neighbour instead would flatten every slope, short ones most.
    """
    if len(values) < 4:
        return values  # too few to tell an outlier from a slope
    inner = _medians(zip(values, values[1:], values[2:], strict=False))
    ends = (
        (values[0], inner[0], 3 * inner[0] - 2 * inner[1]),
        (values[-1], inner[-1], 3 * inner[-1] - 2 * inner[-2]),
    )
    first, last = _medians(ends)
    return [first, *inner, last]


def _medians(threes: Iterable[tuple[int, int, int]]) -> list[int]:
    """Medians without sorting: this runs for every reading of every node."""
    return [
        (two if two < three else three if one < three else one)
        if one < two
        else (one if one < three else three if two < three else two)
        for one, two, three in threes
    ]
