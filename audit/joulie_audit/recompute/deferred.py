"""Readings in columns that are folded when they are needed, many at a time.

What a reading leaves of its node is read at the next decision or plan. Until then its fold is
deferred: of all readings until columns of the twins are needed, and of those of one node until a
fact about that node is folded. The state that is read is bit for bit the one that the messages
leave, one by one.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator

from joulie_audit.recompute.column_part import ColumnPart
from joulie_audit.recompute.deferred_nodes import DeferredNodes, Note
from joulie_audit.recompute.foldable import Foldable
from joulie_projections.fold.producers import counted_on
from joulie_projections.state.state import ClusterState, ProducerState

MOST_LEFT = 2_000  # readings that are folded one by one before the part is looked at again


class _DeferredProducers:
    """The numbers of the producers of telemetry, which readings in columns count on."""

    def __init__(self, producers: dict[str, ProducerState], note: Note) -> None:
        self._producers, self._note = producers, note
        self._todo: Foldable | None = None
        self.limit = 0
        self.changed: set[str] = set()  # by messages, since `begin` or `as_counted`

    def begin(self, todo: Foldable) -> None:
        self._todo = todo
        self.changed.clear()

    def get(self, key: str, /) -> ProducerState | None:
        life = self._todo.producers.get(key) if self._todo else None
        if life is not None and key not in self.changed:
            self._settle(key, life)
        return self._producers.get(key)

    def update(self, kept: dict[str, ProducerState], /) -> None:
        self._producers.update(kept)
        self.changed.update(kept)

    def pop(self, key: str, default: None, /) -> object:
        self.changed.add(key)
        return self._producers.pop(key, default)

    def _settle(self, key: str, life: int) -> None:
        assert self._todo is not None
        known = self._producers[key]
        number = self._todo.number_of_readings(life, self.limit)
        if number > known.lives[-1].high:
            self._note("producer", key, known)
            self._producers[key] = counted_on(known, number)

    def settle(self) -> None:
        for key in self._todo.producers if self._todo else ():
            self.get(key)

    def as_counted(self, begin: int, end: int) -> bool:
        """Whether messages with these rows left the numbers that the readings behind them
        continue. If not, `begin` again."""
        todo = self._todo
        assert todo is not None
        for key in self.changed & todo.producers.keys() | todo.producers_between(begin, end):
            life, known = todo.producers[key], self.get(key)
            newest = known.lives[-1] if known is not None else None
            expected = todo.boot_of(life), todo.number_at(life, end)
            if newest is None or (newest.boot, newest.high) != expected:
                return False
        self.changed.clear()
        return True


class DeferredReadings:
    """A base of drafts. Everything before a row of the part, the limit, counts as folded."""

    def __init__(self, state: ClusterState, set_aside: Collection[int], note: Note) -> None:
        self._state, self._set_aside = state, set_aside
        self.nodes = DeferredNodes(state.nodes, note)
        self.producers = _DeferredProducers(state.producers, note)
        self.pods, self.gpus, self.cluster = state.pods, state.gpus, state.cluster
        self.facilities = state.facilities
        self._todo: Foldable | None = None

    def enter(self, part: ColumnPart, begin: int) -> None:
        """Continues with a row of a part."""
        is_next = self._todo is not None and self._todo.part is part and self.nodes.limit == begin
        if not is_next:
            self.settle()
            self._begin(part, begin)

    def _begin(self, part: ColumnPart, begin: int) -> None:
        self._todo = Foldable(part, begin, self._state, self._set_aside)
        self._reach(begin)
        self.nodes.begin(self._todo)
        self.producers.begin(self._todo)

    def _reach(self, limit: int) -> None:
        self.nodes.limit = self.producers.limit = limit

    def messages(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Stretches of rows between these, which the caller folds one by one; readings between
        them wait."""
        while begin < end:
            assert self._todo is not None
            rows = self._todo.messages
            at = bisect_left(rows, begin)
            if at == len(rows) or rows[at] >= end:
                break
            first = last = rows[at]
            while at + 1 < len(rows) and rows[at + 1] == last + 1 < end:
                at, last = at + 1, last + 1
            self._reach(first)
            yield first, last + 1
            begin = last + 1
            self._reach(begin)
            self._look_again(first, begin)
        self._reach(end)

    def _look_again(self, begin: int, end: int) -> None:
        """After messages with these rows: if readings behind them cannot be folded as before, or
        more of them perhaps can, as their nodes and producers are known now."""
        assert self._todo is not None
        is_as_counted = self.producers.as_counted(begin, end) and not self.nodes.has_lost
        if is_as_counted and self._todo.left_before(end) < MOST_LEFT:
            return
        self.nodes.has_lost = False
        self.settle()
        self._begin(self._todo.part, end)

    def settle(self) -> None:
        """Brings up the whole state."""
        self.nodes.settle()
        self.producers.settle()
