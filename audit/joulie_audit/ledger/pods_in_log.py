"""The life of each pod of a log: when it was asked for, where and how long it ran."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from joulie_audit.archive.fact_source import FactSource
from joulie_audit.chain.log_start import trimmed_hint
from joulie_audit.ledger.availability import Availability
from joulie_audit.replay.fold_start import opened
from joulie_bus.core.times import MS
from joulie_bus.errors import StateDamaged
from joulie_bus.events import (
    Fact,
    NodeGone,
    NodeSeen,
    PlanMade,
    PodAsk,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
    SleepOrdered,
    WakeOrdered,
)
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.subjects import Stream
from joulie_projections.energy.accepted import accepted
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import History
from joulie_projections.state.rows import cluster_state_of
from joulie_projections.state.state import ClusterState, NodeState, PodState
from joulie_projections.state.state_changes import Draft

L = TypeVar("L", bound="Lives")
READ = frozenset((Stream.PLAN, Stream.OBS))
log = get_logger("audit")


class PodLife(NamedTuple):
    """Times in milliseconds; 0: not yet."""

    pod: PodAsk
    asked_ms: int
    node: str = ""
    start_ms: int = 0
    end_ms: int = 0


class Seen(NamedTuple):
    """A node, as last seen."""

    labels: Mapping[str, str]
    memory_bytes: int


class Settings(NamedTuple):
    """Those of plans, from the first plan on that has them."""

    since_ms: int
    values: Mapping[str, float | str | bool]


class Off(NamedTuple):
    """A time during which a node was switched off; `end_ms` 0: it still is."""

    start_ms: int
    end_ms: int = 0


class PowerStates:
    """When nodes were off by an order to sleep: an order alone switches nothing off. A node that
    boots is not off."""

    def __init__(self) -> None:
        self.off: dict[str, list[Off]] = defaultdict(list)
        self.woken_ms: list[int] = []  # of each order to wake up
        self.booted_ms: list[int] = []  # how long each node took from its order to ready
        self._ordered: set[str] = set()
        self._booting: dict[str, int] = {}  # since when

    def fold(self, fact: SleepOrdered | WakeOrdered | NodeSeen, at_ms: int) -> None:
        match fact:
            case SleepOrdered():
                self._ordered.add(fact.node)
            case WakeOrdered():
                self.woken_ms.append(at_ms)
                self._ordered.discard(fact.node)
                if self._is_off(fact.node):
                    self._booting[fact.node] = at_ms
                self._on(fact.node, at_ms)
            case NodeSeen() if fact.ready:
                if fact.node in self._booting:
                    self.booted_ms.append(at_ms - self._booting.pop(fact.node))
                self._on(fact.node, at_ms)
            case _:
                if fact.node in self._ordered and not self._is_off(fact.node):
                    self.off[fact.node].append(Off(at_ms))

    def begin(self, name: str, node: NodeState, at_ms: int) -> None:
        if node.power_state == "asleep":
            self._ordered.add(name)
            if node.present and not node.ready:
                self.off[name].append(Off(at_ms))

    def _is_off(self, node: str) -> bool:
        times = self.off.get(node, [])
        return bool(times) and not times[-1].end_ms

    def _on(self, node: str, at_ms: int) -> None:
        if self._is_off(node):
            self.off[node][-1] = self.off[node][-1]._replace(end_ms=at_ms)


class Lives:
    """Pods by uid, when nodes were off, and the settings of plans."""

    def __init__(self) -> None:
        self.pods: dict[str, PodLife] = {}
        self.power = PowerStates()
        self.available = Availability()
        self.seen: dict[str, Seen] = {}
        self.sleeps = 0  # orders
        self.first_ms = 0  # of the log, or of its part after a trim; 0 while it is empty
        self.settings: list[Settings] = []  # one for each change
        self.lacks = ""  # why pods from before a trim are missing; empty: none are

    def begin(self, state: ClusterState, at_ms: int) -> None:
        """In place of the facts up to then, for what ran, was off or in force at that time."""
        self.first_ms = at_ms
        self.pods.update((uid, _life_at(pod, at_ms)) for uid, pod in state.pods.items())
        for name, node in state.nodes.items():
            self.power.begin(name, node, at_ms)
            self.available.begin(name, node, at_ms)
            self.seen[name] = Seen(node.labels, node.memory_bytes)
            self.sleeps += node.power_at > 0
        if state.plan is not None:
            self.settings.append(Settings(state.planned_at // MS, state.plan.settings))

    def fold(self, fact: Fact, at_ms: int) -> None:
        self.first_ms = self.first_ms or at_ms
        match fact:
            case PodPending():
                self.pods.setdefault(fact.pod.uid, PodLife(fact.pod, at_ms))
            case PodBound():
                known = self.pods.get(fact.pod.uid) or PodLife(fact.pod, at_ms)
                if not known.start_ms:
                    bound = known._replace(pod=fact.pod, node=fact.node, start_ms=at_ms)
                    self.pods[fact.pod.uid] = bound
            case PodFinished() | PodGone():
                self._end(fact.uid, at_ms)
            case SleepOrdered() | WakeOrdered() | NodeSeen() | NodeGone():
                self._fold_node(fact, at_ms)
            case PlanMade():
                if not self.settings or self.settings[-1].values != fact.settings:
                    self.settings.append(Settings(at_ms, fact.settings))
            case _:
                pass

    def _fold_node(
        self, fact: SleepOrdered | WakeOrdered | NodeSeen | NodeGone, at_ms: int
    ) -> None:
        self.sleeps += isinstance(fact, SleepOrdered)
        self.available.fold(fact, at_ms)
        if isinstance(fact, NodeSeen):
            self.seen[fact.node] = Seen(fact.labels, fact.memory_bytes)
        if not isinstance(fact, NodeGone):
            self.power.fold(fact, at_ms)

    def _end(self, uid: str, at_ms: int) -> None:
        known = self.pods.get(uid)
        if known is not None and not known.end_ms:
            self.pods[uid] = known._replace(end_ms=at_ms)


def _life_at(pod: PodState, at_ms: int) -> PodLife:
    """The state does not hold when a pod was asked for: it was before, so that its wait does not
    count, as that of no pod that was asked for before a period."""
    start_ms = pod.bound_at // MS
    asked_ms = min(start_ms or at_ms, at_ms - 1)
    return PodLife(pod.pod, asked_ms, pod.node, start_ms, at_ms if pod.finished else 0)


async def lives_of(history: History, facts: FactSource, last: int) -> Lives:
    """Up to this position."""
    return await folded(Lives(), history, facts, last)


async def folded(lives: L, history: History, facts: FactSource, last: int) -> L:
    """Reads the streams of plans and observations only. A log that was trimmed begins with the
    state at its cut."""
    before, counters = _begun(lives, history)
    set_aside = history.set_aside()
    for manifest in history.manifests(before + 1, last):
        places = list(_places(manifest))
        if not places:
            continue
        records = await facts.of(manifest, READ)
        draft = Draft(counters)
        for record, place in zip(records, places, strict=True):
            if place <= last:
                _fold(lives, accepted(draft, [record], place - 1, set_aside))
        draft.commit()
    return lives


def _begun(lives: Lives, history: History) -> tuple[int, ClusterState]:
    """The position after which facts are folded, and the state there."""
    if (cut := history.cut()) is None:
        return 0, ClusterState()
    for found in history.snapshots():
        if found.position < cut.p_to:  # a trim is unfinished
            continue
        try:
            state = cluster_state_of(opened(history, found)[1])
        except StateDamaged:
            log.warning("snapshot_damaged", position=found.position, use="a later one")
        else:
            lives.begin(state, _newest_ms(state))
            return found.position, state
    lives.lacks = trimmed_hint(cut)
    return cut.p_to, ClusterState()


def _newest_ms(state: ClusterState) -> int:
    """By the clock of the broker, as facts have it; commits have another one."""
    times = [node.at for node in state.nodes.values()]
    times += [pod.bound_at for pod in state.pods.values()]
    return max(times, default=0) // MS


def _fold(lives: Lives, facts: Iterable[tuple[Fact, int]]) -> None:
    for fact, at in facts:
        lives.fold(fact, at // MS)


def _places(manifest: Manifest) -> Iterable[int]:
    position = manifest.p_from
    for part in manifest.ranges:
        end = position + part.last - part.first + 1
        if part.stream in READ:
            yield from range(position, end)
        position = end
