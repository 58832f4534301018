"""What the extender remembers of its own answers, and no more than so much of it. Pure.

Nothing in here changes an answer: a memory that is empty, full or lost gives the same ones.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple

from joulie_bus.events import Candidates, FilterDecided, PodAsk, PreemptDecided, PrioritizeDecided
from joulie_extender.candidates import Names
from joulie_extender.moment import Moment
from joulie_extender.standing import Weights, standing_of
from joulie_projections.arrays import Ints
from joulie_projections.board import Board

Answered = FilterDecided | PrioritizeDecided | PreemptDecided

PODS = 10_000  # whose calls are counted
REJECTIONS = 256  # pods whose last rejection can be given again ...
REJECTED_BYTES = 16 * 1024 * 1024  # ... and of all of them together
NAME_BYTES = 160  # of a name in a list: as text, as it was sent, and where its node is
EXPLAINED_BYTES = 16 * 1024 * 1024  # of candidates and scores, in all explanations together
PER_POD = 8  # newest answers


class Seen:
    """Which pods have been asked about lately."""

    def __init__(self) -> None:
        self._uids: OrderedDict[str, None] = OrderedDict()

    def again(self, uid: str) -> bool:
        """Has it been asked about before? From now on it has."""
        if uid in self._uids:
            self._uids.move_to_end(uid)
            return True
        self._uids[uid] = None
        if len(self._uids) > PODS:
            self._uids.popitem(last=False)
        return False


class Rejection(NamedTuple):
    """An answer, and all that it rests on: while this is the same, the answer is."""

    pod: PodAsk
    names: Names
    board: Board
    valid_until: int  # when the next twin among the candidates gets too old
    verdicts: bytes
    reason: str
    reply: bytes


class Rejections:
    """A pod that was refused comes back at every event of the cluster, and asks the same again.

    Only of the newest board: a rejection that rests on an older one is never given again, and would
    keep all of that board in memory.
    """

    def __init__(self, limit: int = REJECTED_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._by_pod: OrderedDict[str, Rejection] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_pod)

    def find(self, pod: PodAsk, names: Names, moment: Moment, weights: Weights) -> Rejection | None:
        found = self._by_pod.get(pod.uid)
        if found is None or found.board is not moment.board or found.pod != pod:
            return None
        is_view_fresh = moment.view_age_ms <= weights.staleness_s * 1000
        same = found.names is names and moment.now < found.valid_until and is_view_fresh
        return found if same else None

    def keep(self, rejection: Rejection) -> None:
        newest = next(reversed(self._by_pod.values()), None)
        if newest is not None and newest.board is not rejection.board:
            self._by_pod.clear()
            self._size = 0
        self._forget(rejection.pod.uid)
        self._by_pod[rejection.pod.uid] = rejection
        self._size += _weight_of(rejection)
        while self._size > self._limit or len(self._by_pod) > REJECTIONS:
            self._forget(next(iter(self._by_pod)))

    def _forget(self, uid: str) -> None:
        gone = self._by_pod.pop(uid, None)
        if gone is not None:
            self._size -= _weight_of(gone)


def _weight_of(rejection: Rejection) -> int:
    return len(rejection.reply) + len(rejection.names) * NAME_BYTES


def valid_until(moment: Moment, rows: Ints, weights: Weights) -> int:
    """Until then no fresh candidate grows stale; 0 if the whole view is too old already."""
    if moment.view_age_ms > weights.staleness_s * 1000:
        return 0
    fresh = standing_of(moment.board, moment.now, moment.view_age_ms, weights).fresh.take(rows)
    updated = moment.board.updated_at(rows)[fresh]
    oldest = int(updated.min()) if len(updated) else moment.now
    return oldest + int(weights.staleness_s * 1e9)


class Explanations:
    """The newest answers, by pod; the oldest pod goes when there are too many bytes of them."""

    def __init__(self, limit: int = EXPLAINED_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._by_pod: OrderedDict[str, deque[Answered]] = OrderedDict()

    def keep(self, answer: Answered) -> None:
        if _size_of(answer) > self._limit // (2 * PER_POD):
            return  # of no cluster that there is
        uid = answer.pod.uid
        answers = self._by_pod.setdefault(uid, deque())
        self._by_pod.move_to_end(uid)
        answers.append(answer)
        self._size += _size_of(answer)
        if len(answers) > PER_POD:
            self._size -= _size_of(answers.popleft())
        while self._size > self._limit and len(self._by_pod) > 1:
            _, gone = self._by_pod.popitem(last=False)
            self._size -= sum(map(_size_of, gone))

    def of(self, uid: str) -> Iterable[Answered]:
        return tuple(self._by_pod.get(uid, ()))


_FIXED = 4096  # an answer without its candidates, roughly


def _size_of(answer: Answered) -> int:
    return _FIXED + _bytes_of(answer.candidates) * 2


def _bytes_of(candidates: Candidates) -> int:
    return len(candidates.ordinals) + sum(map(len, candidates.strangers))
