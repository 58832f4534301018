"""Which readings of a part are folded from their columns, by node and by producer."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_audit.recompute.column_part import ColumnPart, Ints, PartReadings
from joulie_bus.events import TelemetrySampled
from joulie_projections.fold.producers import TelemetryCounter, telemetry_row
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

Flags = npt.NDArray[np.bool_]


class _Groups:
    """Places by the group that they belong to, in order within each."""

    def __init__(self, group: Ints, count: int) -> None:
        self.order = np.argsort(group, kind="stable")
        starts = np.searchsorted(group[self.order], np.arange(count + 1))
        self._starts: list[int] = starts.tolist()
        self.rank = np.empty(len(group), np.int64)  # of each within its group
        self.rank[self.order] = np.arange(len(group)) - starts[group[self.order]]

    def of(self, group: int) -> Ints:
        return self.order[self._starts[group] : self._starts[group + 1]]


class _Numbers(NamedTuple):
    """The numbers of all messages of the lives of a part, in the order of the log."""

    row: Ints
    life: Ints
    number: Ints

    @classmethod
    def of(cls, part: ColumnPart, begin: int, aside: Flags) -> "_Numbers":
        """From a row on. A message that is set aside was not counted."""
        read, known = part.readings, {life: at for at, life in enumerate(part.readings.lives)}
        counted = [(each.row, known[each.life], each.number) for each in part.counted]
        others = np.array(counted, np.int64).reshape(-1, 3).T
        columns = zip((read.row, read.life, read.number), others, strict=True)
        numbers = cls(*(np.concatenate(pair) for pair in columns))
        chosen = np.argsort(numbers.row, kind="stable")
        chosen = chosen[(numbers.row[chosen] >= begin) & ~aside[numbers.row[chosen]]]
        return cls(*(column[chosen] for column in numbers))


class Foldable:
    """The readings of a part from a row on, of nodes that are known and of producers whose numbers
    continue without a gap what was folded before. All other messages are folded one by one.

    That the numbers continue holds as long as the other messages are counted too: `number_at`.
    """

    def __init__(
        self, part: ColumnPart, begin: int, state: ClusterState, set_aside: Collection[int]
    ) -> None:
        self.part = part
        aside = np.zeros(len(part), np.bool_)
        aside[[at - part.first for at in set_aside if 0 <= at - part.first < len(part)]] = True
        read = part.readings
        self._numbers = _Numbers.of(part, begin, aside)
        self._by_life = _Groups(self._numbers.life, len(read.lives))
        ends = self._ends(read.lives, state)
        known = np.array([name in state.nodes for name in read.nodes], np.bool_)
        may = (read.row >= begin) & ~aside[read.row]
        chosen = may & known[read.node] & (read.row < ends[read.life]) if len(read.row) else may
        self.read = _chosen(read, chosen)
        self._left = read.row[may & ~chosen]
        self._readings_by_life = _Groups(self.read.life, len(read.lives))
        self.by_node = _Groups(self.read.node, len(read.nodes))
        self.messages = _without(part, begin, self.read.row)
        # By the keys of their rows, and these keys: the lives that readings continue.
        self.producers = {telemetry_row(life): at for at, life in enumerate(read.lives) if ends[at]}
        self._keys = {life: key for key, life in self.producers.items()}

    def _ends(self, lives: Sequence[str], state: ClusterState) -> Ints:
        """Of each life the row from which on its numbers do not continue; 0 if they never do."""
        counter = TelemetryCounter(Draft(state))
        found = np.zeros(len(lives), np.int64)
        for at, life in enumerate(lives):
            mine = self._by_life.of(at)
            highest = counter.highest(life)
            if highest is None or not len(mine):
                continue
            gaps = np.flatnonzero(np.diff(self._numbers.number[mine], prepend=highest) != 1)
            if not len(gaps):
                found[at] = len(self.part)
            elif gaps[0]:
                found[at] = self._numbers.row[mine[gaps[0]]]
        return found

    def left_before(self, row: int) -> int:
        """How many readings in columns before a row are folded one by one."""
        return int(np.searchsorted(self._left, row))

    def count_before(self, row: int) -> int:
        return int(np.searchsorted(self.read.row, row))

    def sampled(self, place: int) -> tuple[TelemetrySampled, int]:
        """A reading as the fold of one message takes it, and when it was stored."""
        read = self.read
        fact = TelemetrySampled(
            node=read.nodes[int(read.node[place])],
            power_mw=int(read.power_mw[place]),
            source=read.sources[int(read.source[place])],  # type: ignore[arg-type]
            provider=read.providers[int(read.provider[place])],
            late_ms=int(read.late_ms[place]),
        )
        return fact, int(read.at[place])

    def producers_between(self, begin: int, end: int) -> set[str]:
        """Those that readings continue, of which a message has one of these rows."""
        first, last = np.searchsorted(self._numbers.row, (begin, end))
        lives = self._numbers.life[first:last].tolist()
        return {self._keys[life] for life in lives if life in self._keys}

    def boot_of(self, life: int) -> str:
        return self.part.readings.lives[life].partition(":")[2]

    def number_of_readings(self, life: int, row: int) -> int:
        """The newest number among the readings before a row; -1 if there are none."""
        mine = self._readings_by_life.of(life)
        count = int(np.searchsorted(self.read.row[mine], row))
        return int(self.read.number[mine[count - 1]]) if count else -1

    def number_at(self, life: int, row: int) -> int:
        """The newest number of any message before a row; -1 if there are none."""
        mine = self._by_life.of(life)
        count = int(np.searchsorted(self._numbers.row[mine], row))
        return int(self._numbers.number[mine[count - 1]]) if count else -1


def _chosen(read: PartReadings, which: npt.NDArray[Any]) -> PartReadings:
    return PartReadings(*read[:4], *(column[which] for column in read[4:]))


def _without(part: ColumnPart, begin: int, rows: Ints) -> list[int]:
    is_message = np.ones(len(part), np.bool_)
    is_message[:begin] = False
    is_message[rows] = False
    found: list[int] = np.flatnonzero(is_message).tolist()
    return found
