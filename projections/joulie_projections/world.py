"""What the folds believe, and how one more fact changes it.

Pure: no clock, no database, no log lines. The same facts in the same order give the same world,
live or in a replay next year. `Draft` collects changes beside a world and leaves it as it is.
"""

from collections.abc import Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar, assert_never

import msgspec
from msgspec.structs import replace

from joulie_bus.codec import Origin
from joulie_bus.events import (
    CapsSet,
    CardClaimed,
    ClaimConfirmed,
    ClaimReleased,
    DrainingBegun,
    FacilityPolled,
    Fact,
    GpuGone,
    GpuSeen,
    HardwareDiscovered,
    NodeGone,
    NodeSeen,
    PlanEvent,
    PlanMade,
    PodAsk,
    PodBound,
    PodFact,
    PodFinished,
    PodGone,
    PodPending,
    ProfileAssigned,
    SleepOrdered,
    TelemetrySampled,
    TransitionCompleted,
    WakeOrdered,
)
from joulie_projections.cards import CardState, claimed, sighted

TREND_WINDOW_NS = 300_000_000_000
SAMPLE_SPACING_NS = 10_000_000_000  # 30 points in 5 minutes describe a slope well enough
REMEMBERED_LIVES = 4  # restarts of one producer whose late messages are still told from new ones
MISSING_LIMIT = 256  # holes remembered per life; the rest counts as lost at once
CLUSTER = "cluster"  # the only key of its table


# Without `gc`: what is frozen and plain is part of no cycle, and every sample makes some of these
# anew, so that the collector would walk the world again and again.
class Sample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    at: int
    power_mw: int


class NodeState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Everything believed about one node. The board turns it into a twin."""

    ordinal: int  # its row on every board, never given to another node
    at: int  # when the broker stored the newest fact about it
    uid: str = ""
    present: bool = False  # Kubernetes has shown it
    labels: dict[str, str] = {}
    ready: bool = False
    schedulable: bool = False
    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    hardware: HardwareDiscovered | None = None
    profile: str = ""  # performance or eco, once a plan has said so
    draining: bool = False
    power_state: str = ""  # awake; "asleep" or "waking" once a plan has said so
    cpu_cap_pct: int | None = None
    gpu_cap_pct: int | None = None
    cpu_cap_mw_per_socket: int | None = None  # beside the percentage, where watts were planned
    gpu_cap_mw: int | None = None
    class_at: int = 0  # when a plan last changed its class: its profile, or that it drains
    caps_at: int = 0  # when a plan last changed its caps
    samples: tuple[Sample, ...] = ()  # oldest first, the last one is the newest reading
    source: str = ""
    provider: str = ""
    pods: int = 0  # bound and not finished
    performance_pods: int = 0


class PodState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pod: PodAsk
    node: str = ""  # bound there
    bound_at: int = 0
    finished: bool = False


class Life(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One incarnation of a producer: how far it counted, and which numbers have not come."""

    boot: str
    high: int
    missing: tuple[int, ...] = ()
    lost: int = 0  # holes too many to remember


class ProducerState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    lives: tuple[Life, ...]  # newest last


class ClusterState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    nodes_ever: int = 0
    planned_at: int = 0  # when the operator last looked, whether it changed anything or not
    plan: PlanMade | None = None


class Reading(msgspec.Struct, frozen=True, array_like=True):
    at: int
    value: int


class FacilityState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last reading of each kind, however old."""

    ambient_mdeg: Reading | None = None
    it_mw: Reading | None = None
    cooling_mw: Reading | None = None


State = NodeState | PodState | CardState | FacilityState | ProducerState | ClusterState
S = TypeVar("S", bound=State)


class World:
    """Owned by one folder; changes only by `Draft.commit`."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.pods: dict[str, PodState] = {}
        self.gpus: dict[str, CardState] = {}  # by the card's uuid
        self.facilities: dict[str, FacilityState] = {}
        self.producers: dict[str, ProducerState] = {}
        self.cluster: dict[str, ClusterState] = {}  # one row, once there is something to say

    @property
    def planned_at(self) -> int:
        return self.cluster[CLUSTER].planned_at if self.cluster else 0


class Overlay(Generic[S]):
    """A table with changes on top: reads see them, the table below does not."""

    def __init__(self, base: dict[str, S]) -> None:
        self._base = base
        self.changes: dict[str, S | None] = {}

    def get(self, key: str) -> S | None:
        return self.changes[key] if key in self.changes else self._base.get(key)

    def put(self, key: str, state: S) -> None:
        self.changes[key] = state

    def drop(self, key: str) -> None:
        self.changes[key] = None

    def before(self, key: str) -> S | None:
        return self._base.get(key)

    def commit(self) -> None:
        for key, state in self.changes.items():
            if state is None:
                self._base.pop(key, None)
            else:
                self._base[key] = state
        self.changes.clear()


class Change(NamedTuple):
    table: str
    key: str
    before: State | None
    after: State | None


class Draft:
    """What some facts would change. Throw it away, or `commit` it once the database has."""

    def __init__(self, world: World) -> None:
        self.nodes = Overlay(world.nodes)
        self.pods = Overlay(world.pods)
        self.gpus = Overlay(world.gpus)
        self.facilities = Overlay(world.facilities)
        self.producers = Overlay(world.producers)
        self.cluster = Overlay(world.cluster)

    @property
    def tables(self) -> Mapping[str, Overlay]:  # type: ignore[type-arg]
        return {
            "node": self.nodes,
            "pod": self.pods,
            "gpu": self.gpus,
            "facility": self.facilities,
            "producer": self.producers,
            "cluster": self.cluster,
        }

    def changed(self) -> Iterator[Change]:
        for table, overlay in self.tables.items():
            for key, after in overlay.changes.items():
                yield Change(table, key, overlay.before(key), after)

    def commit(self) -> None:
        for overlay in self.tables.values():
            overlay.commit()


def is_news(draft: Draft, origin: Origin) -> bool:
    """False for a message that a producer has sent before; remembers what is still missing.

    A pipelined producer may send again what was lost while later messages arrived, so a smaller
    number is old only if it is not one of the holes.
    """
    known = draft.producers.get(origin.producer) or ProducerState(())
    newest = known.lives[-1] if known.lives else None
    if newest is not None and origin.boot == newest.boot and origin.seq == newest.high + 1:
        # The usual case, on the path of every sample; what follows would give the same.
        going_on = Life(newest.boot, origin.seq, newest.missing, newest.lost)
        draft.producers.put(origin.producer, ProducerState((*known.lives[:-1], going_on)))
        return True
    life = next((life for life in known.lives if life.boot == origin.boot), None)
    following = _counted(life or Life(origin.boot, 0), origin.seq)
    if following is None:
        return False
    others = tuple(life for life in known.lives if life.boot != origin.boot)
    lives = (*others, following)[-REMEMBERED_LIVES:]
    draft.producers.put(origin.producer, ProducerState(lives))
    return True


def _counted(life: Life, seq: int) -> Life | None:
    if seq == life.high + 1:
        return Life(life.boot, seq, life.missing, life.lost)
    if seq > life.high:
        skipped = seq - life.high - 1
        room = max(0, MISSING_LIMIT - len(life.missing))
        kept = range(max(life.high + 1, seq - room), seq)
        missing = (*life.missing, *kept)
        return Life(life.boot, seq, missing, life.lost + skipped - len(kept))
    if seq in life.missing:
        rest = tuple(hole for hole in life.missing if hole != seq)
        return Life(life.boot, life.high, rest, life.lost)
    return None


def evolve(draft: Draft, fact: Fact, at: int) -> None:
    """One step of the fold. `at` is when the broker stored the fact: the only time that counts."""
    match fact:
        case TelemetrySampled():  # first, because nearly all are
            _sampled(draft, fact, at)
        case NodeSeen() | NodeGone() | HardwareDiscovered():
            _evolve_node(draft, fact, at)
        case PodPending() | PodBound() | PodFinished() | PodGone():
            _evolve_pod(draft, fact, at)
        case FacilityPolled():
            _polled(draft, fact, at)
        case GpuSeen() | GpuGone():
            _change_card(draft, fact.uuid, sighted(draft.gpus.get(fact.uuid), fact, at))
        case CardClaimed() | ClaimConfirmed() | ClaimReleased():
            _change_card(draft, fact.card, claimed(draft.gpus.get(fact.card), fact, at))
        case _:
            _evolve_plan(draft, fact, at)


def _evolve_node(draft: Draft, fact: NodeSeen | NodeGone | HardwareDiscovered, at: int) -> None:
    match fact:
        case NodeSeen():
            _node_seen(draft, fact, at)
        case NodeGone():
            _node_gone(draft, fact.node, at)
        case HardwareDiscovered():
            _change_node(draft, fact.node, at, hardware=fact)
        case _:
            assert_never(fact)


def _evolve_pod(draft: Draft, fact: PodFact, at: int) -> None:
    match fact:
        case PodPending():
            _pod_pending(draft, fact)
        case PodBound():
            _pod_bound(draft, fact, at)
        case PodFinished():
            _pod_finished(draft, fact.uid)
        case PodGone():
            _pod_finished(draft, fact.uid)
            draft.pods.drop(fact.uid)
        case _:
            assert_never(fact)


def _evolve_plan(draft: Draft, fact: PlanEvent, at: int) -> None:
    match fact:
        case PlanMade():
            draft.cluster.put(CLUSTER, replace(_cluster(draft), planned_at=at, plan=fact))
        case ProfileAssigned() | TransitionCompleted():
            _change_node(draft, fact.node, at, profile=fact.profile, draining=False, class_at=at)
        case DrainingBegun():
            _change_node(draft, fact.node, at, draining=True, class_at=at)
        case CapsSet():
            _change_node(
                draft,
                fact.node,
                at,
                cpu_cap_pct=fact.cpu_cap_pct,
                gpu_cap_pct=fact.gpu_cap_pct,
                cpu_cap_mw_per_socket=fact.cpu_cap_mw_per_socket,
                gpu_cap_mw=fact.gpu_cap_mw,
                caps_at=at,
            )
        case SleepOrdered():
            _change_node(draft, fact.node, at, power_state="asleep")
        case WakeOrdered():
            _change_node(draft, fact.node, at, power_state="waking")
        case _:
            assert_never(fact)


def _change_node(draft: Draft, name: str, at: int, **changes: object) -> None:
    draft.nodes.put(name, replace(_node(draft, name, at), at=at, **changes))


def _change_card(draft: Draft, uuid: str, after: CardState | None) -> None:
    if after is None:
        draft.gpus.drop(uuid)
    else:
        draft.gpus.put(uuid, after)


def _polled(draft: Draft, polled: FacilityPolled, at: int) -> None:
    known = draft.facilities.get(polled.facility) or FacilityState()
    after = FacilityState(
        ambient_mdeg=_read(known.ambient_mdeg, polled.ambient_mdeg, at),
        it_mw=_read(known.it_mw, polled.it_mw, at),
        cooling_mw=_read(known.cooling_mw, polled.cooling_mw, at),
    )
    draft.facilities.put(polled.facility, after)


def _read(known: Reading | None, value: int | None, at: int) -> Reading | None:
    return known if value is None else Reading(at, value)


def _cluster(draft: Draft) -> ClusterState:
    return draft.cluster.get(CLUSTER) or ClusterState()


def _node(draft: Draft, name: str, at: int) -> NodeState:
    """A node that is heard of for the first time, by whatever fact, gets its row."""
    known = draft.nodes.get(name)
    if known is not None:
        return known
    cluster = _cluster(draft)
    draft.cluster.put(CLUSTER, replace(cluster, nodes_ever=cluster.nodes_ever + 1))
    return NodeState(ordinal=cluster.nodes_ever, at=at)


def _node_seen(draft: Draft, seen: NodeSeen, at: int) -> None:
    node = _node(draft, seen.node, at)
    is_up = node.power_state == "waking" and seen.ready
    after = replace(
        node,
        at=at,
        present=True,
        uid=seen.uid,
        labels=seen.labels,
        ready=seen.ready,
        schedulable=seen.schedulable,
        cpu_milli=seen.cpu_milli,
        memory_bytes=seen.memory_bytes,
        gpus=seen.gpus,
        power_state="" if is_up else node.power_state,
    )
    draft.nodes.put(seen.node, after)


def _node_gone(draft: Draft, name: str, at: int) -> None:
    """Its pods outlive it for a while, and it may come back under its name: they stay counted."""
    node = draft.nodes.get(name)
    if node is None or not node.pods:
        draft.nodes.drop(name)
        return
    blank = NodeState(
        ordinal=node.ordinal, at=at, pods=node.pods, performance_pods=node.performance_pods
    )
    draft.nodes.put(name, blank)


def _sampled(draft: Draft, sampled: TelemetrySampled, at: int) -> None:
    node = _node(draft, sampled.node, at)
    samples = with_sample(node.samples, Sample(at, sampled.power_mw))
    draft.nodes.put(
        sampled.node,
        replace(node, at=at, samples=samples, source=sampled.source, provider=sampled.provider),
    )


def with_sample(samples: tuple[Sample, ...], new: Sample) -> tuple[Sample, ...]:
    """The newest reading counts; older ones stay at a spacing, and fall out of the window."""
    if len(samples) > 1 and samples[-1].at - samples[-2].at < SAMPLE_SPACING_NS:
        samples = samples[:-1]
    oldest = new.at - TREND_WINDOW_NS
    first = 0
    while first < len(samples) and samples[first].at < oldest:
        first += 1
    return (*samples[first:], new)


def _pod_pending(draft: Draft, pending: PodPending) -> None:
    if draft.pods.get(pending.pod.uid) is None:  # a bound pod is not pending again
        draft.pods.put(pending.pod.uid, PodState(pod=pending.pod))


def _pod_bound(draft: Draft, bound: PodBound, at: int) -> None:
    known = draft.pods.get(bound.pod.uid)
    if known is not None and (known.node or known.finished):
        return
    draft.pods.put(bound.pod.uid, PodState(pod=bound.pod, node=bound.node, bound_at=at))
    draft.nodes.put(bound.node, _node(draft, bound.node, at))  # pods may be seen before their node
    _count_pod(draft, bound.node, bound.pod, +1)


def _pod_finished(draft: Draft, uid: str) -> None:
    known = draft.pods.get(uid)
    if known is None or known.finished:
        return
    draft.pods.put(uid, replace(known, finished=True))
    if known.node:
        _count_pod(draft, known.node, known.pod, -1)


def _count_pod(draft: Draft, name: str, pod: PodAsk, by: int) -> None:
    node = draft.nodes.get(name)
    if node is None:
        return
    performance = by if pod.workload == "performance" else 0
    counted = replace(
        node, pods=node.pods + by, performance_pods=node.performance_pods + performance
    )
    if counted == NodeState(ordinal=node.ordinal, at=node.at):  # gone, and now its last pod too
        draft.nodes.drop(name)
    else:
        draft.nodes.put(name, counted)
