"""What prioritize will be asked is known as soon as filter has answered: the same pod, the nodes
that were let through. So it is thought about while kube-scheduler is busy with its own part. Pure.

Both answers rest on one moment, as both questions do: kube-scheduler looks at one snapshot of the
cluster from the first of them to the last.
"""

from collections import OrderedDict
from typing import Generic, NamedTuple, TypeVar

from joulie_bus.events import PodAsk
from joulie_extender.protocol.candidates import Names

AnswerT = TypeVar("AnswerT")
PODS = 8  # foreseen at a time: a few schedulers, each with one pod in its hands
HOLDS_MS = 50  # a pod that comes back later has been elsewhere meanwhile
MISSES = 8  # in a row: nobody asks ...
RARELY = 16  # ... and only one of so many is foreseen, to see whether that is still so


class Foreseen(NamedTuple, Generic[AnswerT]):
    pod: PodAsk
    names: Names
    now: int  # of its moment
    answer: AnswerT

    def fits(self, pod: PodAsk, names: Names, now: int) -> bool:
        passed_ms = (now - self.now) // 1_000_000
        return self.names is names and self.pod == pod and 0 <= passed_ms <= HOLDS_MS


class Foresight(Generic[AnswerT]):
    """No more than a few answers, and no board that they rest on."""

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
        self._by_pod[foreseen.pod.uid] = foreseen
        if len(self._by_pod) > PODS:
            self._by_pod.popitem(last=False)
            self._misses += 1

    def find(self, pod: PodAsk, names: Names, now: int) -> AnswerT | None:
        """Once: it is asked for once."""
        found = self._by_pod.pop(pod.uid, None)
        if found is None:
            return None
        if not found.fits(pod, names, now):
            self._misses += 1
            return None
        self._misses = 0
        return found.answer
