"""What has to be written to the cluster: the view, less what the API server has already. Pure.

A node whose state, twin and labels are the very objects that they were needs no second look, so
that 5,000 nodes that do nothing cost next to nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeVar
from zlib import crc32

from joulie_bus.events import PlanMade
from joulie_operator.apply.desired import (
    DRAINING_LABEL,
    Moment,
    Room,
    belongs,
    differs,
    has_moved,
    labels_of,
    spec_of,
    status_of,
)
from joulie_operator.kube.custom_resources import (
    MANAGER,
    NodeTwin,
    NodeTwinSpec,
    NodeTwinStatus,
    ObjectMeta,
)
from joulie_operator.observe.facts_from_objects import Node
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.twin.facility import NO_HALLS, halls_of
from joulie_projections.twin.totals import RACK_CAPACITY_W, RunningTotals, psu_stress
from joulie_projections.twin.twin import PROFILE_LABEL

OUR_LABELS = (PROFILE_LABEL, DRAINING_LABEL)  # the second, of older versions, is taken off
LONGEST_TRUCE_S = 60.0
BREATHS_PER_S = 10  # statuses of all nodes that follow numbers: each costs the API server 5 ms
T = TypeVar("T", covariant=True)


class Seen(Protocol[T]):
    """The objects of a kind, as the API server has them."""

    def get(self, name: str, /) -> T | None: ...

    def names(self) -> list[str]: ...


class Step(NamedTuple):
    what: Literal["label", "spec", "status", "delete"]
    spec: NodeTwinSpec | None = None
    labels: Mapping[str, str] = {}


class Errand(NamedTuple):
    """All that one node needs, in its order."""

    name: str
    steps: Sequence[Step]


class Wishes(NamedTuple):
    """What the settings say about it."""

    selector: Mapping[str, str]
    status_s: float
    rack_w: float = RACK_CAPACITY_W
    racks_w: Mapping[str, float] = {}


@dataclass
class Kept:
    """What is remembered of one node."""

    node: NodeState | None = None
    twin: NodeTwin | None = None
    actual: Node | None = None
    look_again: float = 0.0
    not_before: float = 0.0  # it failed, and has to wait
    failures: int = 0
    told: NodeTwinSpec | None = None  # the spec that we wrote last
    overruled: int = 0  # how often somebody wrote another one since
    status: NodeTwinStatus | None = None  # the one that we wrote last ...
    status_at: float | None = None  # ... and when; before our time, somewhen


class Clock(NamedTuple):
    """One moment on both clocks: what waits counts on the first, what is told on the second."""

    monotonic_s: float
    wall_ns: int


class Differences:
    def __init__(self, nodes: Seen[Node], twins: Seen[NodeTwin], wishes: Wishes) -> None:
        self._nodes = nodes
        self._twins = twins
        self._wishes = wishes
        self._kept: dict[str, Kept] = {}
        self._turn = 0
        self._drawn = RunningTotals()
        self._halls = NO_HALLS
        self._status_s = wishes.status_s

    def kept(self, name: str) -> Kept:
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = Kept()
        return kept

    def look(self, cluster_state: ClusterState, now: Clock) -> list[Errand]:
        """Each time beginning with another node, so that nobody is always last."""
        self._drawn.follow(cluster_state.nodes, now.wall_ns)
        self._halls = halls_of(cluster_state.facilities)
        names = self._names(cluster_state)
        self._status_s = max(self._wishes.status_s, len(names) / BREATHS_PER_S)
        self._turn = (self._turn + 1 + len(names) // 7) % max(1, len(names))
        rotated = names[self._turn :] + names[: self._turn]
        cluster = next(iter(cluster_state.cluster.values()), None)
        policy = _policy(cluster.plan if cluster else None)
        found = [self._errand(name, cluster_state.nodes.get(name), policy, now) for name in rotated]
        return [errand for errand in found if errand is not None]

    def status(self, twin: NodeTwin, node: NodeState, now_ns: int) -> NodeTwinStatus:
        """In the room and the rack of the last look."""
        wishes = self._wishes
        stress = psu_stress(node, self._drawn.totals, wishes.racks_w, wishes.rack_w)
        return status_of(node, twin, Moment(now_ns, node.at), Room(self._halls, stress))

    def _names(self, cluster_state: ClusterState) -> list[str]:
        """Whatever the log, the nodes or the NodeTwins know of."""
        names = list(
            dict.fromkeys([*cluster_state.nodes, *self._nodes.names(), *self._twins.names()])
        )
        if len(self._kept) > len(names):
            known = set(names)
            self._kept = {name: kept for name, kept in self._kept.items() if name in known}
        return names

    def _errand(self, name: str, node: NodeState | None, policy: str, now: Clock) -> Errand | None:
        kept, at = self.kept(name), now.monotonic_s
        twin, actual = self._twins.get(name), self._nodes.get(name)
        is_same = kept.node is node and kept.twin is twin and kept.actual is actual
        if at < kept.not_before or (is_same and at < kept.look_again):
            return None
        # The next look is for what changes by time alone: a reading that grows old.
        kept.look_again = at + self._wishes.status_s * (0.75 + crc32(name.encode()) % 64 / 128)
        kept.node, kept.twin, kept.actual = node, twin, actual
        if actual is None or not belongs(actual.metadata.labels or {}, self._wishes.selector):
            steps = _farewell(twin, actual)
        elif node is None or not node.present:
            return None  # the log will hear of it in a moment
        else:
            steps = self._steps(kept, node, spec_of(name, node, policy), now)
        return Errand(name, steps) if steps else None

    def _steps(
        self, kept: Kept, node: NodeState, spec: NodeTwinSpec | None, now: Clock
    ) -> list[Step]:
        steps = []
        known = kept.twin.spec if kept.twin else None
        if spec is not None and spec != known:
            if not _is_overruled(kept, spec, now.monotonic_s):
                steps = [Step("spec", spec=spec), Step("status")]
        elif kept.twin is not None and self._is_due(kept, kept.twin, node, now):
            steps = [Step("status")]
        labels = labels_of(node)
        found = (kept.actual.metadata.labels if kept.actual else None) or {}
        if labels != {key: found[key] for key in OUR_LABELS if key in found}:
            # To save: first no new pods, then less power. To perform: the other way round.
            steps.insert(0 if node.profile == "eco" else len(steps), Step("label", labels=labels))
        return steps

    def _is_due(self, kept: Kept, twin: NodeTwin, node: NodeState, now: Clock) -> bool:
        wanted = self.status(twin, node, now.wall_ns)
        if twin.status is None:
            return True
        if differs(twin.status, wanted):
            if kept.status is None or differs(kept.status, wanted):
                return True  # else somebody changed what we wrote, and is not raced with
        elif not has_moved(twin.status, wanted):
            return False
        due = self._due(kept, twin.metadata.name, now)
        kept.look_again = min(kept.look_again, max(now.monotonic_s, due))
        return now.monotonic_s >= due

    def _due(self, kept: Kept, name: str, now: Clock) -> float:
        """When numbers may be followed again. Those whose last time nobody knows take turns."""
        if kept.status_at is None:
            kept.status_at = now.monotonic_s - self._status_s * (crc32(name.encode()) % 64 / 64)
        return kept.status_at + self._status_s


def _is_overruled(kept: Kept, spec: NodeTwinSpec, at: float) -> bool:
    """Somebody writes his own again and again: we keep to ours, but do not race."""
    if kept.told != spec or kept.twin is None:
        kept.overruled = 0
        return False
    kept.overruled += 1
    kept.told = None  # next time it is written
    kept.not_before = at + min(LONGEST_TRUCE_S, 2.0**kept.overruled)
    return True


def _farewell(twin: NodeTwin | None, actual: Node | None) -> list[Step]:
    """Only what is ours: what somebody else made stays."""
    steps = []
    if actual is not None and _is_labelled(actual.metadata):
        steps.append(Step("label"))
    if twin is not None and twin.metadata.is_managed_by(MANAGER):
        steps.append(Step("delete"))
    return steps


def _is_labelled(meta: ObjectMeta) -> bool:
    return meta.is_managed_by(MANAGER) and any(key in (meta.labels or {}) for key in OUR_LABELS)


def _policy(plan: PlanMade | None) -> str:
    return plan.policy if plan is not None else ""
