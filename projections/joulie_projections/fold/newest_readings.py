"""What readings leave of many nodes, in arrays: a fold of one reading of each of them is a few
operations on columns.

Bit for bit what `with_reading` leaves of each node: all values are integers, which the arrays hold
as they are. Nodes with pods that the last reading may not include are left to `with_reading`.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from joulie_projections.fold.node_facts import (
    IDLE_READINGS,
    NS_PER_MS,
    SAMPLE_SPACING_NS,
    TREND_WINDOW_NS,
    idle_from,
)
from joulie_projections.state.state import NodeState, Sample

Ints = npt.NDArray[np.int64]
ROOM = 64  # samples of a node, in a ring; a fold keeps at most 33: one each 10 s of 5 minutes
_MOST_LOADED = 40
_NEVER = 2**63 - 1


class NodeReadings(NamedTuple):
    """A reading of each of some nodes; no node has two."""

    row: Ints  # of the node, in the arrays
    at: Ints  # when the broker stored it
    late_ms: Ints
    power_mw: Ints
    source: Ints  # by its number in the arrays
    provider: Ints

    def chosen(self, which: npt.NDArray[Any]) -> "NodeReadings":
        return NodeReadings(*(column[which] for column in self))


class Samples(NamedTuple):
    """The samples of some nodes, a row each, oldest first; values behind `held` mean nothing."""

    made_at: Ints
    power_mw: Ints
    held: Ints


class NewestReadings:
    def __init__(self) -> None:
        self._made_at = np.zeros((0, ROOM), np.int64)
        self._power_mw = np.zeros((0, ROOM), np.int64)
        self._first, self._count = (np.zeros(0, np.int64) for _ in range(2))  # in the ring
        self._source, self._provider = (np.zeros(0, np.int64) for _ in range(2))
        self._idle_from, self._idle_mw = (np.zeros(0, np.int64) for _ in range(2))
        self.at = np.zeros(0, np.int64)
        self._texts: dict[str, int] = {}

    def grow(self, rows: int) -> None:
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                added = np.zeros((rows - len(column), *column.shape[1:]), np.int64)
                setattr(self, name, np.concatenate([column, added]))

    def number_of(self, text: str) -> int:
        """Of a source or a provider."""
        return self._texts.setdefault(text, len(self._texts))

    @staticmethod
    def can_hold(node: NodeState) -> bool:
        return not node.arrivals and len(node.samples) <= _MOST_LOADED

    def load(self, row: int, node: NodeState) -> None:
        count = len(node.samples)
        self._made_at[row, :count] = [sample.at for sample in node.samples]
        self._power_mw[row, :count] = [sample.power_mw for sample in node.samples]
        self._first[row], self._count[row], self.at[row] = 0, count, node.at
        self._source[row] = self.number_of(node.source)
        self._provider[row] = self.number_of(node.provider)
        begin = idle_from(node)
        self._idle_from[row] = _NEVER if begin is None else begin
        self._idle_mw[row] = node.idle_mw

    def fold(self, read: NodeReadings) -> None:
        made_at = read.at - read.late_ms * NS_PER_MS
        if (is_back := self._are_back(read, made_at)).any():
            read, made_at = read.chosen(~is_back), made_at[~is_back]
        row = read.row
        first, count = self._thinned(row, made_at)
        place = (first + count) % ROOM
        self._made_at[row, place] = made_at
        self._power_mw[row, place] = read.power_mw
        self._first[row], self._count[row], self.at[row] = first, count + 1, read.at
        self._source[row], self._provider[row] = read.source, read.provider
        self._fold_idle(row, read.power_mw, made_at)

    def _are_back(self, read: NodeReadings, made_at: Ints) -> npt.NDArray[np.bool_]:
        """The power of a node does not go back in time."""
        is_late = read.late_ms > 0
        if not is_late.any():
            return is_late
        first, count = self._first[read.row], self._count[read.row]
        newest = self._made_at[read.row, (first + count - 1) % ROOM]
        return np.asarray(is_late & (count > 0) & (made_at <= newest))

    def _thinned(self, row: Ints, made_at: Ints) -> tuple[Ints, Ints]:
        """Where the samples begin that remain, and their number: see `with_sample`."""
        first, count = self._first[row], self._count[row]
        last, before = (self._made_at[row, (first + count - back) % ROOM] for back in (1, 2))
        count = count - ((count > 1) & (last - before < SAMPLE_SPACING_NS))
        oldest = made_at - TREND_WINDOW_NS
        while (is_old := (count > 0) & (self._made_at[row, first] < oldest)).any():
            first, count = (first + is_old) % ROOM, count - is_old
        return first, count

    def _fold_idle(self, row: Ints, power_mw: Ints, made_at: Ints) -> None:
        is_idle = made_at >= self._idle_from[row]
        if is_idle.any():
            row, power_mw = row[is_idle], power_mw[is_idle]
            known = self._idle_mw[row]
            moved = known + (power_mw - known) // IDLE_READINGS
            self._idle_mw[row] = np.where(known != 0, moved, power_mw)

    def samples_of(self, rows: Ints) -> Samples:
        count = self._count[rows]
        across = np.arange(max(int(count.max(initial=0)), 1))
        places = (self._first[rows, None] + across) % ROOM
        at = rows[:, None], places
        return Samples(self._made_at[at], self._power_mw[at], count)

    def node_after(self, row: int, node: NodeState) -> NodeState:
        """The node with what the arrays have of it; `node` is what was loaded."""
        places = (int(self._first[row]) + np.arange(int(self._count[row]))) % ROOM
        times: list[int] = self._made_at[row, places].tolist()
        powers: list[int] = self._power_mw[row, places].tolist()
        texts = list(self._texts)
        return replace(
            node,
            at=int(self.at[row]),
            samples=tuple(map(Sample, times, powers)),
            source=texts[int(self._source[row])],
            provider=texts[int(self._provider[row])],
            idle_mw=int(self._idle_mw[row]),
        )
