"""One snapshot of the cluster as API values."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from joulie_answers.schema.requests import NodeClassName, PodPhase
from joulie_answers.schema.responses import (
    Basis,
    Classes,
    NodeBrief,
    PlanBrief,
    PodBrief,
    Sampled,
    StateMachine,
)
from joulie_answers.views.sentences import plan_sentence
from joulie_bus.core.times import MS
from joulie_bus.events import PlanMade
from joulie_bus.runtime.presets import HEADROOM
from joulie_extender.gpu.shapes import CARD
from joulie_operator.planning.guard import Stage
from joulie_operator.planning.node_states import WAKING, node_states
from joulie_projections.state.state import (
    CLUSTER,
    ClusterState,
    FacilityReading,
    NodeState,
    PodState,
)
from joulie_projections.twin.arrays import Floats, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.twin import NodeClass, Source, has_trend

RACK_LABEL = "joulie.io/rack"
ZONE_LABEL = "joulie.io/cooling-zone"
UNKNOWN = -1
NodeStateName = Literal["awake", "asleep", "waking", "not ready", "cordoned"]
POWER_STATES: list[NodeStateName] = ["awake", "asleep", "waking", "not ready", "cordoned"]
_CLASS_NAMES: dict[NodeClass, NodeClassName] = {
    NodeClass.UNKNOWN: "unknown",
    NodeClass.PERFORMANCE: "performance",
    NodeClass.ECO: "eco",
    NodeClass.DRAINING: "draining",
}


class ClusterSnapshot(NamedTuple):
    """The state and the twins at one position."""

    position: int
    at: int  # ns, by the broker's clock: when this position was the newest
    cluster_state: ClusterState
    twin_columns: TwinColumns


class Totals(NamedTuple):
    measured_w: float | None  # None, as the others, if no node of the sum is known
    capped_w: float | None  # of the nodes that no plan lets sleep
    tdp_w: float | None
    trend_w_per_min: float | None
    measured: int  # nodes with a fresh reading
    nodes: int


class Columns(NamedTuple):
    """One value per row of the twins' columns, rounded for the map."""

    node_class: Ints
    headroom: Ints
    cooling: Ints
    watts: Ints
    gpu: Ints
    power: Ints
    used: Ints


class Overview:
    """A snapshot with derived columns that several responses need, each computed once."""

    def __init__(self, snapshot: ClusterSnapshot, staleness_s: float) -> None:
        self.snapshot = snapshot
        twin_columns = snapshot.twin_columns
        self.fresh = _fresh(twin_columns, snapshot.at, staleness_s)
        self.known = twin_columns.columns["hardware"] != Source.NONE
        self.measured = self.fresh & (twin_columns.floats("capped_w") > 0)

    @cached_property
    def headroom(self) -> Floats:
        return _headroom(self.snapshot.twin_columns, self.measured)

    @cached_property
    def requested_gpus(self) -> Floats:
        return _requested_gpus(self.snapshot.cluster_state, self.snapshot.twin_columns)

    def gpu_units(self) -> int:
        """Of all GPUs that pods can request: units of shared cards."""
        twin_columns = self.snapshot.twin_columns
        is_unit = twin_columns.ints("unit_milli") < CARD
        return int(twin_columns.floats("gpus")[is_unit].sum())

    def totals(self) -> Totals:
        twin_columns = self.snapshot.twin_columns
        rows = rows_of(twin_columns)
        read, known = rows[self.fresh[rows]], rows[self.known[rows]]
        on = known[self._power_states()[known] != POWER_STATES.index("asleep")]

        def total(column: str, of: Ints) -> float | None:
            return float(twin_columns.floats(column)[of].sum()) if len(of) else None

        return Totals(
            total("measured_w", read),
            total("capped_w", on),
            total("tdp_w", on),
            total("trend_w_per_min", read),
            len(read),
            len(rows),
        )

    def classes(self) -> Classes:
        twin_columns = self.snapshot.twin_columns
        counts = np.bincount(twin_columns.columns["node_class"][rows_of(twin_columns)], minlength=4)
        return Classes(
            unknown=int(counts[NodeClass.UNKNOWN]),
            performance=int(counts[NodeClass.PERFORMANCE]),
            eco=int(counts[NodeClass.ECO]),
            draining=int(counts[NodeClass.DRAINING]),
        )

    def columns(self) -> Columns:
        twin_columns = self.snapshot.twin_columns
        gpus = twin_columns.floats("gpus")
        share = np.minimum(100, self.requested_gpus * 100 / np.maximum(gpus, 1))
        headroom = np.where(np.isnan(self.headroom), UNKNOWN, np.clip(self.headroom, 0, 100))
        watts = np.where(self.fresh, twin_columns.floats("measured_w"), UNKNOWN)
        cooling = np.where(self.known, twin_columns.floats("cooling"), UNKNOWN)
        gpu = np.where(gpus > 0, share, UNKNOWN)
        return Columns(
            twin_columns.columns["node_class"].astype(np.int64),
            np.rint(headroom).astype(np.int64),
            np.rint(cooling).astype(np.int64),
            np.rint(watts).astype(np.int64),
            np.rint(gpu).astype(np.int64),
            self._power_states(),
            np.floor(np.maximum(self._requested_cores(), gpu)).astype(np.int64),
        )

    def _requested_cores(self) -> Floats:
        """In percent; unknown where Kubernetes has told no size of the node."""
        shares = np.full(len(self.snapshot.twin_columns.columns["gpus"]), float(UNKNOWN))
        nodes = self.snapshot.cluster_state.nodes
        for name, row in self.snapshot.twin_columns.rows.items():
            if cores := nodes[name].cpu_milli:
                shares[row] = nodes[name].load.cpu_milli * 100 / cores
        capped: Floats = np.minimum(shares, 100.0)
        return capped

    def oldest_stale_s(self) -> float | None:
        """The age of the oldest reading that is not fresh any more; None if there is none."""
        sampled = self.snapshot.twin_columns.ints("sampled_at")
        stale = sampled[(sampled > 0) & ~self.fresh]
        return (self.snapshot.at - int(stale.min())) / 1e9 if len(stale) else None

    def _power_states(self) -> Ints:
        twin_columns = self.snapshot.twin_columns
        states = np.zeros(len(twin_columns.columns["gpus"]), np.int64)
        nodes = self.snapshot.cluster_state.nodes
        for name, row in twin_columns.rows.items():
            states[row] = POWER_STATES.index(node_state(nodes[name]))
        return states

    def states(self) -> Counter[NodeStateName]:
        nodes = self.snapshot.cluster_state.nodes
        return Counter(node_state(nodes[name]) for name in self.snapshot.twin_columns.rows)

    def node(self, name: str) -> NodeBrief:
        node, twin_columns = self.snapshot.cluster_state.nodes[name], self.snapshot.twin_columns
        at = twin_columns.rows[name]

        def value(column: str, is_known: bool = bool(self.known[at])) -> float | None:
            return float(twin_columns.floats(column)[at]) if is_known else None

        headroom, gpus = float(self.headroom[at]), value("gpus")
        fresh = bool(self.fresh[at])
        hardware = node.hardware
        return NodeBrief(
            name=name,
            id=node.ordinal,
            node_class=class_name(int(twin_columns.columns["node_class"][at])),
            power_state=node.power_state or "awake",  # type: ignore[arg-type]
            state=node_state(node),
            ready=node.ready,
            schedulable=node.schedulable,
            rack=node.labels.get(RACK_LABEL, ""),
            cooling_zone=node.labels.get(ZONE_LABEL, ""),
            cpu_model=hardware.cpu_model if hardware else "",
            gpu_model=hardware.gpu_model if hardware else "",
            cores=value("cores"),
            gpus=None if gpus is None else int(gpus),
            gpu_unit=node.unit_milli / 1000,
            gpus_asked=float(self.requested_gpus[at]),
            pods=node.pods,
            performance_pods=node.performance_pods,
            measured_w=value("measured_w", fresh),
            sampled_at_ms=int(twin_columns.ints("sampled_at")[at]) // MS,
            capped_w=value("capped_w"),
            tdp_w=value("tdp_w"),
            cpu_cap_pct=node.cpu_cap_pct,
            gpu_cap_pct=node.gpu_cap_pct,
            headroom=None if np.isnan(headroom) else headroom,
            headroom_basis=self._basis(at),
            cooling=value("cooling"),
            trend_w_per_min=value("trend_w_per_min", fresh and has_trend(node.samples)),
            updated_at_ms=int(twin_columns.updated_at()[at]) // MS,
        )

    def ambient_c(self, name: str) -> float | None:
        """As the node's hall was polled; its twin assumes a temperature without that."""
        state = self.snapshot.cluster_state
        halls, zone = state.facilities, state.nodes[name].labels.get(ZONE_LABEL, "")
        only = next(iter(halls.values())) if len(halls) == 1 else None
        ambient = hall.ambient_mdeg if (hall := halls.get(zone, only)) is not None else None
        return None if ambient is None else ambient.value / 1000

    def hardware_source(self, name: str) -> str:
        columns = self.snapshot.twin_columns
        return Source(int(columns.columns["hardware"][columns.rows[name]])).name.lower()

    def _basis(self, at: int) -> Basis:
        if self.measured[at]:
            return "measured"
        return "unknown" if np.isnan(self.headroom[at]) else "predicted"


def node_state(node: NodeState) -> NodeStateName:
    """Apart from its class: a node that is lost or drained takes no pods."""
    if node.power_state:
        return node.power_state  # type: ignore[return-value]
    if not node.ready:
        return "not ready"
    return "awake" if node.schedulable else "cordoned"


def rows_of(twin_columns: TwinColumns) -> Ints:
    return np.fromiter(twin_columns.rows.values(), np.int64, len(twin_columns.rows))


def class_name(value: int) -> NodeClassName:
    return _CLASS_NAMES[NodeClass(value)]


def _fresh(twin_columns: TwinColumns, now: int, staleness_s: float) -> npt.NDArray[np.bool_]:
    sampled = twin_columns.ints("sampled_at")
    fresh: npt.NDArray[np.bool_] = (sampled > 0) & (now - sampled <= staleness_s * 1e9)
    return fresh


def _headroom(twin_columns: TwinColumns, measured: npt.NDArray[np.bool_]) -> Floats:
    """Free percentage of the cap: measured where there is a fresh reading, else predicted."""
    capped = twin_columns.floats("capped_w")
    free = (capped - twin_columns.floats("measured_w")) / np.where(capped > 0, capped, 1.0) * 100
    known = twin_columns.columns["hardware"] != Source.NONE
    predicted = np.where(known, twin_columns.floats("headroom"), np.nan)
    return np.where(measured, free, predicted)


def _requested_gpus(cluster_state: ClusterState, twin_columns: TwinColumns) -> Floats:
    requested = np.zeros(len(twin_columns.columns["gpus"]))
    for name, row in twin_columns.rows.items():
        load = cluster_state.nodes[name].load
        requested[row] = (load.gpu_standard_milli + load.gpu_performance_milli) / 1000
    return requested


# --- one node ---------------------------------------------------------------------------------


def state_of(node: NodeState, policy: str) -> StateMachine:
    """`policy` is that of the newest plan: not every policy lets nodes sleep."""
    states, now, following = node_states(node, policy)
    waits = ""
    if now == Stage.DRAINING:
        waits = f"{node.performance_pods} performance pod(s) still run here"
    if now == WAKING:
        waits = "the node is not ready yet"
    return StateMachine(states=states, now=now, following=following, waits_for=waits)


def samples_of(node: NodeState) -> list[Sampled]:
    return [Sampled(at_ms=sample.at // MS, watts=sample.power_mw / 1000) for sample in node.samples]


# --- pods -------------------------------------------------------------------------------------


def phase_of(pod: PodState) -> PodPhase:
    if pod.finished:
        return "finished"
    return "running" if pod.node else "pending"


def pod_brief(pod: PodState) -> PodBrief:
    ask = pod.pod
    return PodBrief(
        uid=ask.uid,
        namespace=ask.namespace,
        name=ask.name,
        workload=ask.workload,
        placement=ask.placement,
        rule=ask.rule,
        exempt=ask.exempt,
        cores=ask.cpu_milli / 1000,
        memory_gib=ask.memory_bytes / 2**30,
        gpus=ask.gpu_milli / 1000,
        phase=phase_of(pod),
        node=pod.node,
        bound_at_ms=pod.bound_at // MS,
    )


def pods_on(cluster_state: ClusterState, node: str) -> list[PodBrief]:
    here = [pod for pod in cluster_state.pods.values() if pod.node == node and not pod.finished]
    return sorted((pod_brief(pod) for pod in here), key=lambda pod: (pod.namespace, pod.name))


def phases(cluster_state: ClusterState) -> dict[PodPhase, int]:
    counted: dict[PodPhase, int] = defaultdict(int)
    for pod in cluster_state.pods.values():
        counted[phase_of(pod)] += 1
    return counted


# --- the cluster ------------------------------------------------------------------------------


def plan_brief(made: PlanMade) -> PlanBrief:
    brief = PlanBrief(
        plan=made.plan,
        policy=made.policy,
        view=made.view,
        nodes=made.nodes,
        performance=made.performance,
        changes=made.changes,
        because=made.because,
        preset=str(made.settings.get("preset", HEADROOM)),
    )
    return replace(brief, text=plan_sentence(brief))


def last_plan(cluster_state: ClusterState) -> PlanBrief | None:
    cluster = cluster_state.cluster.get(CLUSTER)
    return plan_brief(cluster.plan) if cluster and cluster.plan else None


def policy_of(cluster_state: ClusterState) -> str:
    plan = last_plan(cluster_state)
    return plan.policy if plan else ""


class Facility(NamedTuple):
    it_w: float | None
    cooling_w: float | None
    ambient_c: float | None


def facility_of(cluster_state: ClusterState) -> Facility:
    """The watts of all halls together, and the highest ambient temperature."""
    halls = list(cluster_state.facilities.values())
    ambient = _values(hall.ambient_mdeg for hall in halls)
    return Facility(
        _sum(_values(hall.it_mw for hall in halls)),
        _sum(_values(hall.cooling_mw for hall in halls)),
        max(ambient) if ambient else None,
    )


def _values(readings: Iterable[FacilityReading | None]) -> list[float]:
    return [reading.value / 1000 for reading in readings if reading is not None]


def _sum(values: list[float]) -> float | None:
    return sum(values) if values else None


def map_columns(overview: Overview) -> dict[str, Any]:
    """One value per node, in the order of the names."""
    snapshot = overview.snapshot
    names = sorted(snapshot.twin_columns.rows)
    rows = np.fromiter((snapshot.twin_columns.rows[name] for name in names), np.int64, len(names))
    columns = overview.columns()
    nodes = snapshot.cluster_state.nodes
    numbers: dict[str, list[Any]] = {
        field: getattr(columns, field)[rows].tolist() for field in columns._fields
    }
    racks = [_rack(nodes[name]) for name in names]
    return {"id": (rows - 1).tolist(), "name": names, "rack": racks, **numbers}


class MapState(NamedTuple):
    """What the map shows: the nodes by id, and their values by row."""

    nodes: dict[int, tuple[str, str]]  # name and rack
    columns: Columns


def map_state(overview: Overview) -> MapState:
    rows, nodes = overview.snapshot.twin_columns.rows, overview.snapshot.cluster_state.nodes
    names = {row - 1: (name, _rack(nodes[name])) for name, row in rows.items()}
    return MapState(names, overview.columns())


def map_changes(before: MapState, after: MapState) -> dict[str, list[Any]]:
    """What a map has to change: ids are reused, so an id of another node is gone, then added."""
    old, new = before.nodes.items(), after.nodes.items()
    added = [(id_, *node) for id_, node in new - old]
    return {
        "gone": [id_ for id_, _ in old - new],
        "added": added,
        "rows": _changed_rows(before.columns, after, [each[0] for each in added]),
    }


def _changed_rows(before: Columns, after: MapState, added: list[int]) -> list[list[int]]:
    """id, class, headroom, cooling, watts, gpu, power, used of the nodes with a changed value."""
    columns = after.columns
    height = len(columns.node_class)
    differs = np.zeros(height, np.bool_)
    for old, new in zip(before, columns, strict=True):
        shared = min(len(old), height)
        differs[:shared] |= old[:shared] != new[:shared]
    differs[[id_ + 1 for id_ in added]] = True
    rows = np.fromiter((id_ + 1 for id_ in after.nodes), np.int64, len(after.nodes))
    rows = np.sort(rows[differs[rows]])
    listed: list[list[int]] = np.stack(
        [rows - 1, *(column[rows] for column in columns)], axis=1
    ).tolist()
    return listed


def _rack(node: NodeState) -> str:
    return node.labels.get(RACK_LABEL, "")
