"""The names of nodes by row and position.

Rows of removed nodes are reused, so a row has a name only together with a position. A name that
cannot be known any more is reported as unknown; it is never the name at another position.
"""

import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from joulie_bus.events import Candidates
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.state.state_changes import Change

if TYPE_CHECKING:
    from joulie_projections.twin.columns import TwinColumns

UNKNOWN = ""  # the name of a row whose node is ambiguous from this position on
_FOREVER = 2**63 - 1
_Names = dict[int, str]


class RowName(NamedTuple):
    """From `position` on, the row belongs to this node."""

    position: int
    ordinal: int
    name: str


class RowSpan(NamedTuple):
    """A node had the row from position `first` until before `end`."""

    first: int
    end: int
    ordinal: int


def row_names_in(changes: Iterable[Change], position: int) -> list[RowName]:
    """The rows that a commit at this position gave to nodes."""
    return [
        RowName(position, after.ordinal, key)
        for table, key, before, after in changes
        if table == "node"
        and isinstance(after, NodeState)
        and (not isinstance(before, NodeState) or before.ordinal != after.ordinal)
    ]


def ordinals_of(candidates: Candidates) -> tuple[int, ...]:
    """Without numpy, which a status would load for this alone."""
    return struct.unpack(f"<{len(candidates.ordinals) // 4}i", candidates.ordinals)


def unknown_node(ordinal: int) -> str:
    return f"node #{ordinal} (name unknown)"


def names_node(candidates: Candidates, view: int, node: str, spans: Sequence[RowSpan]) -> bool:
    """Whether the node, which had the rows `spans`, is a candidate of a decision at `view`."""
    rows = {span.ordinal for span in spans if span.first <= view < span.end}
    is_row = bool(rows) and not rows.isdisjoint(ordinals_of(candidates))
    return is_row or node in candidates.strangers


class NodeNames:
    """The names at one position."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names

    def of(self, candidates: Candidates) -> list[str]:
        """The names of the candidates of a decision at this position, in their order."""
        strangers, names = iter(candidates.strangers), self._names
        return [
            next(strangers, "?") if at < 0 else names.get(at) or unknown_node(at)
            for at in ordinals_of(candidates)
        ]

    def include(self, candidates: Candidates) -> bool:
        """Whether the name of every candidate is known."""
        return all(at < 0 or self._names.get(at) for at in ordinals_of(candidates))


class RowNames:
    """The names at all positions from `first` to `last`. Immutable."""

    def __init__(self, first: int, last: int, changes: Iterable[RowName]) -> None:
        """`changes` in the order of their positions; of each row also the last one by `first`."""
        self.first, self.last = first, last
        self._by_row: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self._moves: list[int] = []  # the positions of the changes
        self._found: tuple[int, _Names] = (-1, {})  # the names that were asked for last
        for position, ordinal, name in changes:
            self._by_row[ordinal].append((position, name))
            self._moves.append(position)

    @classmethod
    def of_state(cls, position: int, cluster_state: ClusterState) -> "RowNames":
        """The names at one position, by the state at that position."""
        nodes = cluster_state.nodes.items()
        return cls(
            position, position, [RowName(position, node.ordinal, name) for name, node in nodes]
        )

    def __len__(self) -> int:
        return len(self._moves)

    def covers(self, first: int, last: int) -> bool:
        return self.first <= first and last <= self.last

    def extended(self, changes: Sequence[RowName], last: int) -> "RowNames":
        """These names and those of the changes after `self.last`."""
        longer = RowNames(self.first, last, ())
        longer._by_row, longer._moves = self._by_row, self._moves
        if changes:
            longer._by_row = defaultdict(list, self._by_row)
            longer._moves = [*self._moves, *(change.position for change in changes)]
            for position, ordinal, name in changes:
                longer._by_row[ordinal] = [*longer._by_row[ordinal], (position, name)]
        return longer

    def at(self, position: int) -> NodeNames:
        if not self.covers(position, position):
            return NodeNames({})
        moves = bisect_right(self._moves, position)
        found = self._found
        if found[0] != moves:  # else no row has passed to another node between the positions
            found = self._found = (moves, dict(self._named(position)))
        return NodeNames(found[1])

    def _named(self, position: int) -> Iterator[tuple[int, str]]:
        for ordinal, held in self._by_row.items():
            if number := bisect_right(held, position, key=lambda change: change[0]):
                yield ordinal, held[number - 1][1]

    def spans_of(self, node: str) -> list[RowSpan]:
        """The rows that the node had."""
        return [
            RowSpan(begin, end, ordinal)
            for ordinal, held in self._by_row.items()
            for (begin, name), end in zip(held, _ends(held), strict=True)
            if name == node
        ]

    def nodes(self) -> set[str]:
        """Every name that occurs."""
        return {name for held in self._by_row.values() for _, name in held if name != UNKNOWN}


def _ends(held: Sequence[tuple[int, str]]) -> Iterator[int]:
    yield from (position for position, _ in held[1:])
    yield _FOREVER


class ObservedNames:
    """The names at the positions at which columns were observed, as far as memory goes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows: Mapping[str, int] | None = None
        self._names = RowNames(0, -1, ())
        self._last = 0

    def observe(self, position: int, twin_columns: "TwinColumns") -> bool:
        """False for an earlier position than the newest, if its names may be others."""
        rows = twin_columns.rows
        if rows is not self._rows:  # a node was added, removed or moved
            if position < self._last:
                return False
            self._take(position, rows)
        self._last = max(self._last, position)
        return True

    def _take(self, position: int, rows: Mapping[str, int]) -> None:
        before = self._rows or {}
        changes = [
            RowName(position, row - 1, name)
            for name, row in rows.items()
            if before.get(name) != row
        ]
        if self._rows is None or len(self._names) + len(changes) > self._most:
            named = [RowName(position, row - 1, name) for name, row in rows.items()]
            self._names = RowNames(position, position, named)
        else:
            self._names = self._names.extended(changes, position)
        self._rows = rows

    @property
    def names(self) -> RowNames:
        return self._names.extended((), self._last)
