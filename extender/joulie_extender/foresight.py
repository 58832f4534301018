"""What prioritize will be asked is known as soon as filter has answered: the same pod, the nodes
that were let through. So it is thought about while kube-scheduler is busy with its own part. Pure.

Nothing in here changes an answer: one that was foreseen rests on the very board that would be
looked at, a moment earlier.
"""

from collections import OrderedDict
from typing import Generic, NamedTuple, TypeVar

from joulie_bus.events import PodAsk
from joulie_extender.candidates import Names
from joulie_extender.moment import Moment

AnswerT = TypeVar("AnswerT")
PODS = 8  # foreseen at a time: a few schedulers, each with one pod in its hands
HOLDS_MS = 50  # a pod that comes back later has been elsewhere meanwhile
MISSES = 8  # in a row: nobody asks, or the board moves too fast ...
RARELY = 16  # ... and only one of so many is foreseen, to see whether that is still so


class Foreseen(NamedTuple, Generic[AnswerT]):
    pod: PodAsk
    names: Names
    moment: Moment
    answer: AnswerT

    def fits(self, pod: PodAsk, names: Names, moment: Moment) -> bool:
        return self.names is names and self.pod == pod and self._is_now(moment)

    def _is_now(self, moment: Moment) -> bool:
        before = self.moment
        if before.board is not moment.board or before.position != moment.position:
            return False
        passed_ms = (moment.now - before.now) // 1_000_000
        aged_ms = moment.view_age_ms - before.view_age_ms
        return 0 <= passed_ms <= HOLDS_MS and aged_ms <= HOLDS_MS


class Foresight(Generic[AnswerT]):
    """Of the newest board only: an answer that rests on an older one is never given."""

    def __init__(self) -> None:
        self._by_pod: OrderedDict[str, Foreseen[AnswerT]] = OrderedDict()
        self._misses = 0
        self._passed_by = 0

    def is_worthwhile(self) -> bool:
        if self._misses < MISSES:
            return True
        self._passed_by = (self._passed_by + 1) % RARELY
        return not self._passed_by

    def keep(self, foreseen: Foreseen[AnswerT]) -> None:
        newest = next(reversed(self._by_pod.values()), None)
        if newest is not None and newest.moment.board is not foreseen.moment.board:
            self._misses += len(self._by_pod)
            self._by_pod.clear()
        self._by_pod[foreseen.pod.uid] = foreseen
        if len(self._by_pod) > PODS:
            self._by_pod.popitem(last=False)
            self._misses += 1

    def find(self, pod: PodAsk, names: Names, moment: Moment) -> AnswerT | None:
        """Once: it is asked for once."""
        found = self._by_pod.pop(pod.uid, None)
        if found is None:
            return None
        if not found.fits(pod, names, moment):
            self._misses += 1
            return None
        self._misses = 0
        return found.answer
