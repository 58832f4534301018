"""What was refused, for the next time that the same is asked. Pure.

A pod that was refused comes back at every event of the cluster; and kube-scheduler goes round, so
that the next pod of its kind is asked about with the same list. Nothing in here changes an answer:
while all that a rejection rests on is the very same, so is what would be thought.
"""

from collections import OrderedDict
from operator import is_
from typing import NamedTuple

from joulie_bus.events import PodAsk
from joulie_extender.decide.node_terms import Weights, fresh_rows, standing_of
from joulie_extender.decide.snapshot import Moment
from joulie_extender.gpu.fit import asks
from joulie_extender.protocol.candidates import Names
from joulie_projections.twin.columns import TwinColumns

REJECTIONS = 256  # that can be given again ...
REJECTED_BYTES = 8 * 1024 * 1024  # ... and of all of them together
NAME_BYTES = 160  # of a name in a list: as text, as it was sent, and where its node is

# What a rejection looked at of a board. Readings change none of it, and a board shares with the one
# before what has not changed: the same is the very same.
Parts = tuple[object, ...]
# In energy all pods of one kind are alike; of cards each may hold some already.
Kind = tuple[str, str, str] | PodAsk


class Ground(NamedTuple):
    """What a rejection rests on, beside its pod and its list."""

    parts: Parts
    fresh: bytes  # one for each candidate: whether its twin was up to date

    @classmethod
    def under(cls, pod: PodAsk, names: Names, moment: Moment, weights: Weights) -> "Ground":
        twin_columns, rows = moment.twin_columns, names.rows_on(moment.twin_columns)
        # The standing of this board may be another board's by now; we look at these rows alone.
        fresh = fresh_rows(twin_columns, moment.now, moment.view_age_ms, weights, rows)
        return cls(_parts(pod, twin_columns), fresh.tobytes())


class Rejection(NamedTuple):
    ground: Ground
    verdicts: bytes
    reason: str
    reply: bytes
    kept: Names  # those that passed

    @property
    def size(self) -> int:
        return len(self.reply) + (len(self.verdicts) + len(self.kept)) * NAME_BYTES


class Rejections:
    """Of one state of a board: when that has changed, all are forgotten, and let go of."""

    def __init__(self, limit: int = REJECTED_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[tuple[Kind, Names], Rejection] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, pod: PodAsk, names: Names, moment: Moment, weights: Weights) -> Rejection | None:
        found = self._kept.get((_kind(pod), names))
        if found is None or not _is_same(found.ground.parts, _parts(pod, moment.twin_columns)):
            return None
        standing = standing_of(moment.twin_columns, moment.now, moment.view_age_ms, weights)
        fresh = standing.fresh.take(names.rows_on(moment.twin_columns))
        return found if fresh.tobytes() == found.ground.fresh else None

    def keep(self, pod: PodAsk, names: Names, rejection: Rejection) -> None:
        newest = next(reversed(self._kept.values()), None)
        if newest is not None and not _is_same(newest.ground.parts, rejection.ground.parts):
            self._kept.clear()
            self._size = 0
        key = (_kind(pod), names)
        self._forget(key)
        self._kept[key] = rejection
        self._size += rejection.size
        while self._size > self._limit or len(self._kept) > REJECTIONS:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: tuple[Kind, Names]) -> None:
        gone = self._kept.pop(key, None)
        if gone is not None:
            self._size -= gone.size


def _kind(pod: PodAsk) -> Kind:
    return pod if asks(pod) else (pod.workload, pod.placement, pod.exempt)


def _parts(pod: PodAsk, twin_columns: TwinColumns) -> Parts:
    columns = twin_columns.columns
    of_energy = (twin_columns.rows, columns["node_class"], columns["eco_label"])
    return (*of_energy, columns["present"], twin_columns.cards) if asks(pod) else of_energy


def _is_same(some: Parts, others: Parts) -> bool:
    return all(map(is_, some, others))
