"""The life of each pod of a log: when it was asked for, where and how long it ran."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from joulie_audit.archive.fact_source import FactSource
from joulie_audit.ledger.availability import Availability
from joulie_bus.core.times import MS
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
from joulie_bus.streams.subjects import Stream
from joulie_projections.energy.accepted import accepted
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import History
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

L = TypeVar("L", bound="Lives")
READ = frozenset((Stream.PLAN, Stream.OBS))


class PodLife(NamedTuple):
    """Times in milliseconds; 0: not yet."""

    pod: PodAsk
    asked_ms: int
    node: str = ""
    start_ms: int = 0
    end_ms: int = 0


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
        self._ordered: set[str] = set()

    def fold(self, fact: SleepOrdered | WakeOrdered | NodeSeen, at_ms: int) -> None:
        match fact:
            case SleepOrdered():
                self._ordered.add(fact.node)
            case WakeOrdered():
                self.woken_ms.append(at_ms)
                self._ordered.discard(fact.node)
                self._on(fact.node, at_ms)
            case NodeSeen() if fact.ready:
                self._on(fact.node, at_ms)
            case _:
                if fact.node in self._ordered and not self._is_off(fact.node):
                    self.off[fact.node].append(Off(at_ms))

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
        self.sleeps = 0  # orders
        self.first_ms = 0  # of the log; 0 while it is empty
        self.settings: list[Settings] = []  # one for each change

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
        if not isinstance(fact, NodeGone):
            self.power.fold(fact, at_ms)

    def _end(self, uid: str, at_ms: int) -> None:
        known = self.pods.get(uid)
        if known is not None and not known.end_ms:
            self.pods[uid] = known._replace(end_ms=at_ms)


async def lives_of(history: History, facts: FactSource, last: int) -> Lives:
    """Up to this position."""
    return await folded(Lives(), history, facts, last)


async def folded(lives: L, history: History, facts: FactSource, last: int) -> L:
    """Reads the streams of plans and observations only."""
    counters, set_aside = ClusterState(), history.set_aside()
    for manifest in history.manifests(1, last):
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
