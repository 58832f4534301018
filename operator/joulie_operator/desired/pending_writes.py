"""The writes that the cluster needs: the view compared with the API server's objects.

A node whose state, NodeTwin and Node are the same objects as at the last check is skipped, so that
idle nodes cost next to nothing. So is one of which only numbers changed, until its numbers may be
written.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeVar
from zlib import crc32

from joulie_bus.core.backoff import Backoff
from joulie_bus.events import PlanMade
from joulie_operator.desired.objects import (
    EXCLUDED,
    EXCLUSION_LABEL,
    PLACEMENT_LABEL,
    POWER_LABEL,
    NodeContext,
    StatusTimes,
    differs,
    differs_only_in_numbers,
    first_status,
    has_moved,
    is_first,
    is_managed,
    labels_of,
    spec_of,
    status_of,
    without_caps,
)
from joulie_operator.facts.facts_from_objects import Node
from joulie_operator.resources.custom_resources import (
    MANAGER,
    NodeTwin,
    NodeTwinSpec,
    NodeTwinStatus,
    ObjectMeta,
)
from joulie_projections.pods.classify import PROFILE_LABEL
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.twin.facility import NO_HALLS, halls_of
from joulie_projections.twin.totals import RACK_CAPACITY_W, RunningTotals, psu_stress
from joulie_projections.twin.twin import DRAINING_LABEL

OUR_LABELS = (PROFILE_LABEL, DRAINING_LABEL, POWER_LABEL, PLACEMENT_LABEL, EXCLUSION_LABEL)
OVERWRITTEN = Backoff(2.0, 60.0)
FORGOTTEN_S = 600.0  # without an overwrite, then the backoff starts again
STATUS_UPDATES_PER_S = 10  # of measured numbers, over all nodes: each costs the server 5 ms
COMPLETIONS_PER_S = 50  # first statuses that become whole, over all nodes
T = TypeVar("T", covariant=True)


class ObjectLookup(Protocol[T]):
    """The objects of one kind, as the API server has them."""

    def get(self, name: str, /) -> T | None: ...

    def names(self) -> list[str]: ...


class WriteStep(NamedTuple):
    """One write to the API server."""

    what: Literal["label", "spec", "status", "delete"]
    spec: NodeTwinSpec | None = None
    labels: Mapping[str, str] = {}


class NodeWrites(NamedTuple):
    """The writes that one node needs, in order."""

    name: str
    steps: Sequence[WriteStep]
    is_new: bool = False  # the NodeTwin has no class yet


class WriteOptions(NamedTuple):
    """Options from the settings."""

    selector: Mapping[str, str]
    status_s: float
    rack_w: float = RACK_CAPACITY_W
    racks_w: Mapping[str, float] = {}


@dataclass
class NodeWriteState:
    """What the planner keeps per node between two passes."""

    node: NodeState | None = None
    twin: NodeTwin | None = None
    actual: Node | None = None
    next_check_at: float = 0.0
    left: "NodeWrites | None" = None  # what a pass found and did not begin
    not_before: float = 0.0  # backoff after a failed write
    failures: int = 0
    written_spec: NodeTwinSpec | None = None  # the spec that was written last
    wanted_spec: NodeTwinSpec | None = None  # the spec whose overwrites are counted
    overwrites: int = 0  # how often another writer has replaced it
    overwritten_at: float = 0.0
    status: NodeTwinStatus | None = None  # the status that was written last
    status_at: float | None = None  # when; None if not by this process


class Now(NamedTuple):
    """The time on both clocks: durations use the first, timestamps the second."""

    monotonic_s: float
    wall_ns: int


class WritePlanner:
    """Computes the pending writes of each pass, and keeps the write state of each node."""

    def __init__(
        self, nodes: ObjectLookup[Node], twins: ObjectLookup[NodeTwin], options: WriteOptions
    ) -> None:
        self._nodes = nodes
        self._twins = twins
        self._options = options
        self._states: dict[str, NodeWriteState] = {}
        self._offset = 0
        self._totals = RunningTotals()
        self._halls = NO_HALLS
        self._status_s = options.status_s
        self._completion_s = 0.0

    def state(self, name: str) -> NodeWriteState:
        state = self._states.get(name)
        if state is None:
            state = self._states[name] = NodeWriteState()
        return state

    def leave(self, node_writes: NodeWrites) -> None:
        """The next pass returns these again, if nothing about the node has changed by then: while
        a cluster is new, most nodes wait, and their statuses cost more than the writes."""
        self.state(node_writes.name).left = node_writes

    def pending_writes(self, cluster_state: ClusterState, now: Now) -> list[NodeWrites]:
        """Each call starts with another node, so that no node is always last."""
        self._totals.follow(cluster_state.nodes, now.wall_ns)
        self._halls = halls_of(cluster_state.facilities)
        names = self._names(cluster_state)
        self._status_s = max(self._options.status_s, len(names) / STATUS_UPDATES_PER_S)
        self._completion_s = len(names) / COMPLETIONS_PER_S
        self._offset = (self._offset + 1 + len(names) // 7) % max(1, len(names))
        rotated = names[self._offset :] + names[: self._offset]
        policy = _policy(cluster_state.plan)
        found = [
            self._writes_of(name, cluster_state.nodes.get(name), policy, now)
            for name in self._to_check(rotated, cluster_state.nodes, now.monotonic_s)
        ]
        return [node_writes for node_writes in found if node_writes is not None]

    def _to_check(
        self, names: Sequence[str], nodes: Mapping[str, NodeState], at: float
    ) -> Iterator[str]:
        """One loop without calls: nearly all nodes of a large cluster are skipped in each pass."""
        states, twins, actual = self._states, self._twins, self._nodes
        for name in names:
            state = states.get(name)
            if (
                state is None
                or at >= state.next_check_at
                or state.left is not None
                or state.node is not nodes.get(name)
                or state.twin is not twins.get(name)
                or state.actual is not actual.get(name)
            ):
                yield name

    def status(self, twin: NodeTwin, node: NodeState, now_ns: int) -> NodeTwinStatus:
        """Uses the halls and the rack totals of the last pass."""
        options = self._options
        stress = psu_stress(node, self._totals.totals, options.racks_w, options.rack_w)
        context = NodeContext(self._halls, stress)
        whole = status_of(node, twin, StatusTimes(now_ns, node.at), context)
        return whole if twin.status is not None else first_status(whole)

    def _names(self, cluster_state: ClusterState) -> list[str]:
        """Every name that occurs in the log, among the Nodes or among the NodeTwins."""
        names = list(
            dict.fromkeys([*cluster_state.nodes, *self._nodes.names(), *self._twins.names()])
        )
        if len(self._states) > len(names):
            known = set(names)
            self._states = {name: state for name, state in self._states.items() if name in known}
        return names

    def _writes_of(
        self, name: str, node: NodeState | None, policy: str, now: Now
    ) -> NodeWrites | None:
        state, at = self.state(name), now.monotonic_s
        twin, actual = self._twins.get(name), self._nodes.get(name)
        if state.node is not node and differs_only_in_numbers(state.node, node):
            state.node = node
            state.next_check_at = min(state.next_check_at, self._due(state, name, now))
        is_same = state.node is node and state.twin is twin and state.actual is actual
        if at < state.not_before:
            return None
        left, state.left = state.left, None
        if is_same and (left is not None or at < state.next_check_at):
            return left
        # Checked again even without a change: readings grow stale.
        state.next_check_at = at + self._options.status_s * (0.75 + crc32(name.encode()) % 64 / 128)
        state.node, state.twin, state.actual = node, twin, actual
        if actual is None or not is_managed(actual.metadata.labels or {}, self._options.selector):
            steps = _cleanup_steps(twin, actual)
        elif node is None or not node.present:
            return None  # the watch will publish the node shortly
        else:
            steps = self._steps(state, node, spec_of(name, node, policy), now)
        is_new = twin is None or twin.status is None
        return NodeWrites(name, steps, is_new) if steps else None

    def _steps(
        self, state: NodeWriteState, node: NodeState, spec: NodeTwinSpec | None, now: Now
    ) -> list[WriteStep]:
        steps = []
        known = state.twin.spec if state.twin else None
        found = (state.actual.metadata.labels if state.actual else None) or {}
        labels = labels_of(node)
        if is_excluded_by_another(found):
            labels.pop(EXCLUSION_LABEL, None)
        is_labelled = labels == our_labels(found)
        is_eco = node.profile == "eco"
        if spec is not None and state.twin is None and is_eco and not is_labelled:
            # Each new NodeTwin gets its class before the label and the caps of any.
            return [WriteStep("spec", spec=without_caps(spec)), WriteStep("status")]
        if spec is not None and spec != known:
            if not _note_overwrite(state, spec, now.monotonic_s):
                steps = [WriteStep("spec", spec=spec), WriteStep("status")]
        elif state.twin is not None and self._is_due(state, state.twin, node, now):
            steps = [WriteStep("status")]
        if not is_labelled:
            # Towards eco the label goes first (no new pods, then less power), else last.
            steps.insert(0 if is_eco else len(steps), WriteStep("label", labels=labels))
        return steps

    def _is_due(self, state: NodeWriteState, twin: NodeTwin, node: NodeState, now: Now) -> bool:
        if twin.status is None:
            return True
        wanted = self.status(twin, node, now.wall_ns)
        if is_first(twin.status, wanted):
            due = self._completion_due(state, twin.metadata.name, now)
            return self._is_reached(state, due, now)
        if differs(twin.status, wanted):
            if state.status is None or differs(state.status, wanted):
                return True  # otherwise another writer changed it: wait for the interval
        elif not has_moved(twin.status, wanted):
            return False
        return self._is_reached(state, self._due(state, twin.metadata.name, now), now)

    def _is_reached(self, state: NodeWriteState, due: float, now: Now) -> bool:
        state.next_check_at = min(state.next_check_at, max(now.monotonic_s, due))
        return now.monotonic_s >= due

    def _completion_due(self, state: NodeWriteState, name: str, now: Now) -> float:
        """When a first status becomes whole; spread, so that the server is not busy with them."""
        if state.status_at is None:
            state.status_at = now.monotonic_s
        return state.status_at + self._completion_s * _fraction(name)

    def _due(self, state: NodeWriteState, name: str, now: Now) -> float:
        """When measured numbers may be written again; first writes are spread over time."""
        if state.status_at is None:
            state.status_at = now.monotonic_s - self._status_s * _fraction(name)
        return state.status_at + self._status_s


def _fraction(name: str) -> float:
    """Of an interval, so that not all nodes are due at once."""
    return crc32(name.encode()) % 64 / 64


def _note_overwrite(state: NodeWriteState, spec: NodeTwinSpec, at: float) -> bool:
    """Whether another writer replaced the spec, which is then written again, with a backoff."""
    has_rest = at - state.overwritten_at > FORGOTTEN_S
    if state.wanted_spec != spec or has_rest:  # another plan, or the other writer has stopped
        state.wanted_spec, state.overwrites = spec, 0
    if state.written_spec != spec or state.twin is None:
        return False
    state.overwrites += 1
    state.overwritten_at = at
    state.written_spec = None  # next time it is written
    state.not_before = state.next_check_at = at + OVERWRITTEN.after(state.overwrites)
    return True


def _cleanup_steps(twin: NodeTwin | None, actual: Node | None) -> list[WriteStep]:
    """Removes only what the operator created."""
    steps = []
    if actual is not None and is_labelled(actual.metadata):
        steps.append(WriteStep("label"))
    if twin is not None and twin.metadata.is_managed_by(MANAGER):
        steps.append(WriteStep("delete"))
    return steps


def is_labelled(meta: ObjectMeta) -> bool:
    return meta.is_managed_by(MANAGER) and bool(our_labels(meta.labels or {}))


def our_labels(found: Mapping[str, str]) -> dict[str, str]:
    """Those of a Node that the operator writes, without an exclusion by another."""
    ours = {key: found[key] for key in OUR_LABELS if key in found}
    if is_excluded_by_another(found):
        del ours[EXCLUSION_LABEL]
    return ours


def is_excluded_by_another(found: Mapping[str, str]) -> bool:
    return found.get(EXCLUSION_LABEL, EXCLUDED) != EXCLUDED


def _policy(plan: PlanMade | None) -> str:
    return plan.policy if plan is not None else ""
