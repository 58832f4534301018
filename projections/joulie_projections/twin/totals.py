"""The power of nodes, racks and the cluster; integer sums do not depend on order."""

from collections.abc import Mapping
from typing import NamedTuple

from joulie_bus.events import PowerSource
from joulie_projections.hardware.guesses import IDLE_CARD_SHARE, IDLE_CPU_SHARE
from joulie_projections.state.state import NodeState
from joulie_projections.twin.power import Coefficients, load_w
from joulie_projections.twin.twin import (
    Hardware,
    caps_in_effect,
    curve_of,
    hardware_of,
    trend_w_per_min,
)

RACK_LABEL = "joulie.io/rack"
RACK_CAPACITY_W = 50_000  # a typical feed of one rack
STALE_S = 300.0
_REFRESH_NS = 60_000_000_000


class Measurement(NamedTuple):
    """A node's powerMeasurement: its power, the source of the value, and its limits."""

    source: PowerSource
    provider: str
    age_s: float | None  # of the last reading; None without one
    measured_w: float
    cpu_capped_w: float
    gpu_capped_w: float
    cpu_tdp_w: float
    gpu_tdp_w: float
    trend_w_per_min: float

    @property
    def node_capped_w(self) -> float:
        return self.cpu_capped_w + self.gpu_capped_w

    @property
    def node_tdp_w(self) -> float:
        return self.cpu_tdp_w + self.gpu_tdp_w


PowerReading = tuple[PowerSource, float]


def measurement_of(
    node: NodeState,
    now: int,
    stale_s: float = STALE_S,
    coefficients: Coefficients = Coefficients(),  # noqa: B008
) -> Measurement:
    """The last reading if it is fresh; else the modelled power of a node with pods: its idle power
    and theirs; else the caps."""
    hardware = hardware_of(node)
    cpu_w, gpu_w = hardware.cpu_max_w, hardware.gpu_max_w * hardware.gpus
    cpu_cap, gpu_cap = (cap / 100 for cap in caps_in_effect(node))
    age_s = _age_s(node, now)
    is_fresh = age_s is not None and age_s <= stale_s
    capped_w = cpu_w * cpu_cap + gpu_w * gpu_cap
    if is_fresh:
        source, drawn_w = _read(node)
    elif node.pods:
        modelled_w = _modelled_w(node, hardware, coefficients)
        source, drawn_w = "utilization", min(capped_w, modelled_w)
    else:
        source, drawn_w = "static", capped_w
    return Measurement(
        source=source,
        provider=node.provider if is_fresh else "",
        age_s=age_s,
        measured_w=drawn_w,
        cpu_capped_w=cpu_w * cpu_cap,
        gpu_capped_w=gpu_w * gpu_cap,
        cpu_tdp_w=cpu_w,
        gpu_tdp_w=gpu_w,
        trend_w_per_min=trend_w_per_min(node.samples) if is_fresh else 0.0,
    )


def drawn_w(node: NodeState, now: int) -> float:
    """The power of a measurement; of a fresh reading without the rest, which takes ten times as
    long."""
    age_s = _age_s(node, now)
    if age_s is not None and age_s <= STALE_S:
        return _read(node)[1]
    return measurement_of(node, now).measured_w


def _age_s(node: NodeState, now: int) -> float | None:
    return (now - node.samples[-1].at) / 1e9 if node.samples else None


def _read(node: NodeState) -> PowerReading:
    source: PowerSource = "utilization" if node.source == "utilization" else "kepler"
    return source, node.samples[-1].power_mw / 1000


def _idle_w(of: Hardware) -> float:
    return IDLE_CPU_SHARE * of.cpu_max_w + IDLE_CARD_SHARE * (of.gpus * of.gpu_max_w)


def _modelled_w(node: NodeState, found: Hardware, rates: Coefficients) -> float:
    """Without a reading: what the node draws by its hardware and its pods."""
    watts = load_w(node.load, found.cores, found.cpu_max_w, found.gpus, found.gpu_max_w)
    cpu_w = rates.cpu * (watts.warm_cpu if rates.memory_factor else watts.cpu)
    curve = curve_of(node, found)
    if curve is not None and found.gpu_max_w:
        standard, performance = (
            each / found.gpu_max_w for each in (watts.gpu_standard, watts.gpu_performance)
        )
        added_w = standard * curve.added_w(rates.gpu_standard)
        added_w += performance * curve.added_w(rates.gpu_performance)
        return IDLE_CPU_SHARE * found.cpu_max_w + found.gpus * curve.idle_w + cpu_w + added_w
    gpu_w = rates.gpu_standard * watts.gpu_standard + rates.gpu_performance * watts.gpu_performance
    return _idle_w(found) + (cpu_w + gpu_w)


class Totals(NamedTuple):
    """Sums in milliwatts. A node belongs to the rack that its label names, or to none."""

    cluster_mw: int
    racks_mw: Mapping[str, int]


def totals_of(watts: Mapping[str, float], nodes: Mapping[str, NodeState]) -> Totals:
    """Sums the power of nodes; each value is rounded once, before the addition."""
    racks: dict[str, int] = {}
    cluster = 0
    for name in sorted(watts):
        milliwatts = round(watts[name] * 1000)
        cluster += milliwatts
        if rack := rack_of(nodes[name]):
            racks[rack] = racks.get(rack, 0) + milliwatts
    return Totals(cluster, racks)


def rack_of(node: NodeState) -> str:
    return node.labels.get(RACK_LABEL, "")


class RunningTotals:
    """Totals updated node by node; they equal `totals_of` over all nodes."""

    def __init__(self) -> None:
        self._shares: dict[str, tuple[NodeState, int, str, int]] = {}
        self._racks: dict[str, int] = {}
        self._cluster = 0

    @property
    def totals(self) -> Totals:
        return Totals(self._cluster, self._racks)

    def follow(self, nodes: Mapping[str, NodeState], now: int) -> None:
        """Updates changed nodes, and every node once a minute, because readings expire."""
        for name, node in nodes.items():
            known = self._shares.get(name)
            if known is None or known[0] is not node or now - known[3] > _REFRESH_NS:
                self._add(name, node, now)
        if len(self._shares) > len(nodes):
            for name in self._shares.keys() - nodes.keys():
                self._drop(name)

    def _add(self, name: str, node: NodeState, now: int) -> None:
        self._drop(name)
        milliwatts, rack = round(drawn_w(node, now) * 1000), rack_of(node)
        self._shares[name] = (node, milliwatts, rack, now)
        self._cluster += milliwatts
        if rack:
            self._racks[rack] = self._racks.get(rack, 0) + milliwatts

    def _drop(self, name: str) -> None:
        _, milliwatts, rack, _ = self._shares.pop(name, (None, 0, "", 0))
        self._cluster -= milliwatts
        if rack:
            self._racks[rack] -= milliwatts


def psu_stress(
    node: NodeState,
    totals: Totals,
    capacities_w: Mapping[str, float] | None = None,
    default_w: float = RACK_CAPACITY_W,
) -> float:
    """The used share of the rack's feed in percent; of the cluster for a node without rack."""
    rack = rack_of(node)
    drawn_mw = totals.racks_mw.get(rack, 0) if rack else totals.cluster_mw
    capacity_w = (capacities_w or {}).get(rack, default_w)
    return min(100.0, max(0.0, drawn_mw / 1000 / capacity_w * 100))
