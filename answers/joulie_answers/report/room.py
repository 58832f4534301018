"""Which pods of a log waited although a node had room for them all the time.

These waited for the scheduler and for the way of the facts into the log, not for a node. The
simulated baseline places a pod in the step of its arrival: it does not take this time.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from joulie_audit.ledger.availability import Change
from joulie_audit.ledger.pods_in_log import PodLife
from joulie_projections.energy.pods import Capacity, PodEntry
from joulie_simulator.energy.closed_loop import whole_cards

# At one time, what gives room comes before what takes it, so that room is not seen too often.
LEAVES, GIVES, TAKES, ARRIVES = range(4)


class Size(NamedTuple):
    cpu_milli: int
    cards: int

    @classmethod
    def of(cls, life: PodLife) -> "Size":
        pod = PodEntry.of(life.pod, life.node, life.start_ms)
        return cls(pod.cpu_milli, whole_cards(pod.gpu_milli))


def without_room(
    nodes: Sequence[Capacity],
    stays: Iterable[tuple[int, PodLife]],
    changes: Iterable[tuple[int, Change]],
    waited: Mapping[str, PodLife],
) -> set[str]:
    """Of the pods that waited, by uid: those for which at some time no node had room. Nodes are
    numbers; pods that are on them are among `stays`."""
    room = _Room(nodes)
    sizes = {uid: Size.of(life) for uid, life in waited.items()}
    for _, kind, subject, size in sorted(_events(stays, changes, waited, sizes)):
        if kind == LEAVES:
            room.leave(str(subject))
        elif kind == ARRIVES:
            room.arrive(str(subject), size)
        else:
            room.change(int(subject), size, gives=kind == GIVES)
    return room.lacked


_Event = tuple[int, int, int | str, Size]
OPEN = Size(-1, 0)  # stands for a node that begins or ceases to take pods


def _events(
    stays: Iterable[tuple[int, PodLife]],
    changes: Iterable[tuple[int, Change]],
    waited: Mapping[str, PodLife],
    sizes: Mapping[str, Size],
) -> Iterator[_Event]:
    for node, life in stays:
        size = Size.of(life)
        yield life.start_ms, TAKES, node, size
        if life.end_ms:
            yield life.end_ms, GIVES, node, size
    for node, change in changes:
        yield change.at_ms, GIVES if change.takes_pods else TAKES, node, OPEN
    for uid, life in waited.items():
        yield life.asked_ms, ARRIVES, uid, sizes[uid]
        yield life.start_ms, LEAVES, uid, sizes[uid]


class _Room:
    """Each waiting pod has a node with room for it; only when that node loses room, another one is
    searched."""

    def __init__(self, nodes: Sequence[Capacity]) -> None:
        self.lacked: set[str] = set()
        self._cpu = np.array([node.cpu_milli for node in nodes], np.int64)
        self._cards = np.array([node.requestable for node in nodes], np.int64)
        self._most_cards = np.array([node.gpus for node in nodes], np.int64)  # that a pod can have
        self._takes_pods = np.zeros(len(nodes), np.bool_)
        self._waiting: dict[str, tuple[Size, int]] = {}
        self._at: dict[int, set[str]] = defaultdict(set)

    def arrive(self, uid: str, size: Size) -> None:
        fits = self._takes_pods & (self._cpu >= size.cpu_milli)
        fits &= (self._cards >= size.cards) & (self._most_cards >= size.cards)
        node = int(fits.argmax()) if fits.size else -1
        if node < 0 or not fits[node]:
            self.lacked.add(uid)
            return
        self._waiting[uid] = size, node
        self._at[node].add(uid)

    def leave(self, uid: str) -> None:
        if uid in self._waiting:
            _, node = self._waiting.pop(uid)
            self._at[node].discard(uid)

    def change(self, node: int, size: Size, *, gives: bool) -> None:
        if size == OPEN:
            self._takes_pods[node] = gives
        else:
            sign = 1 if gives else -1
            self._cpu[node] += sign * size.cpu_milli
            self._cards[node] += sign * size.cards
        if not gives:
            self._search_again(node)

    def _search_again(self, node: int) -> None:
        for uid in sorted(self._at.pop(node, ())):
            size, _ = self._waiting.pop(uid)
            self.arrive(uid, size)
