"""Bounded caches of the extender's recent answers.

They serve debug pages and metrics; no answer depends on them.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable

from joulie_bus.events import Candidates, FilterDecided, PreemptDecided, PrioritizeDecided
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.row_names import ObservedNames, RowNames

VerbDecision = FilterDecided | PrioritizeDecided | PreemptDecided

PODS = 10_000  # pods whose calls are counted
EXPLAINED_BYTES = 16 * 1024 * 1024  # of candidates and scores, in all explanations together
PER_POD = 8  # newest answers
NAMES = 50_000  # of rows; those of older answers are then unknown


class RecentPods:
    """The UIDs of recently requested pods."""

    def __init__(self) -> None:
        self._uids: OrderedDict[str, None] = OrderedDict()

    def seen_before(self, uid: str) -> bool:
        """Whether the pod was requested before; adds it."""
        if uid in self._uids:
            self._uids.move_to_end(uid)
            return True
        self._uids[uid] = None
        if len(self._uids) > PODS:
            self._uids.popitem(last=False)
        return False


class RecentAnswers:
    """The newest answers by pod; the oldest pod is evicted when a byte limit is exceeded."""

    def __init__(self, limit: int = EXPLAINED_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._by_pod: OrderedDict[str, deque[VerbDecision]] = OrderedDict()
        self._observed = ObservedNames(NAMES)

    @property
    def names(self) -> RowNames:
        """The names of the nodes in the views of these answers."""
        return self._observed.names

    def keep(self, answer: VerbDecision, twin_columns: TwinColumns) -> None:
        """`twin_columns` are those that the answer used."""
        if _size_of(answer) > self._limit // (2 * PER_POD):
            return  # larger than any real cluster produces
        if not self._observed.observe(answer.basis.view, twin_columns):
            self._start_again()  # the log was set back, or the answers are not in order
            self._observed.observe(answer.basis.view, twin_columns)
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

    def _start_again(self) -> None:
        self._by_pod.clear()
        self._size = 0
        self._observed = ObservedNames(NAMES)

    def of(self, uid: str) -> Iterable[VerbDecision]:
        return tuple(self._by_pod.get(uid, ()))


_FIXED = 4096  # an answer without its candidates, roughly


def _size_of(answer: VerbDecision) -> int:
    return _FIXED + _bytes_of(answer.candidates) * 2


def _bytes_of(candidates: Candidates) -> int:
    return len(candidates.ordinals) + sum(map(len, candidates.strangers))
