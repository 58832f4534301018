"""The twins as columns: one row per node, one array per quantity, one immutable board per position.

The same board scores in the extender, in replay and in the simulator. A row is derived from its
node's state and its room alone, so a board updated row by row equals one built from scratch.
"""

from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_projections.state.cards import CardState
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.twin.arrays import Floats, Ints
from joulie_projections.twin.card_columns import Cards
from joulie_projections.twin.cooling import Heat, linear
from joulie_projections.twin.facility import NO_HALLS, Halls, halls_of
from joulie_projections.twin.labels import NO_LABELS, Labels
from joulie_projections.twin.power import Coefficients, LoadWatts, Rated, modelled_w
from joulie_projections.twin.twin import ReadingColumns, Source, TwinRow, reading_of, row_of

# Of `twins.Row`, in its order.
_COLUMNS: dict[str, type] = {
    "present": np.bool_,
    "node_class": np.int8,
    "eco_label": np.bool_,
    "at": np.int64,
    "sampled_at": np.int64,
    "measured_w": np.float64,
    "trend_w_per_min": np.float64,
    "cpu_cap_pct": np.int64,
    "gpu_cap_pct": np.int64,
    "capped_w": np.float64,
    "tdp_w": np.float64,
    "density": np.float64,
    "cores": np.float64,
    "cpu_max_w": np.float64,
    "gpus": np.float64,
    "gpu_max_w": np.float64,
    "hardware": np.int8,
    "hall": np.int16,
    "pods_cpu_w": np.float64,
    "pods_warm_cpu_w": np.float64,
    "pods_gpu_standard_w": np.float64,
    "pods_gpu_performance_w": np.float64,
    "new_cpu_w": np.float64,
    "new_warm_cpu_w": np.float64,
    "new_gpu_standard_w": np.float64,
    "new_gpu_performance_w": np.float64,
}
# Of the rows in their rooms, all at once.
_OF_ROOMS = ("ambient_c", "pue", "is_polled", "cooling", "headroom")
_ROOMS_REST_ON = ("hall", "at", "capped_w", "tdp_w", "cpu_cap_pct", "gpu_cap_pct")
_values_of = attrgetter(*_COLUMNS)

Column = npt.NDArray[Any]
Columns = dict[str, Column]
_NO_ROWS: Ints = np.zeros(0, np.int64)
_ALL = slice(None)
ROWS_PER_CHANGE = 8  # at least; where more have changed all are looked at again
NO_CARDS = Cards.empty()
EMPTY_LABELS = Labels()


class ChangesSince(NamedTuple):
    """What readers have worked out for an earlier board, and which rows have changed since then."""

    memo: dict[object, object]
    rows: Ints


class TwinColumns:
    """Immutable. Row 0 is nobody: what is asked about a node that we do not know."""

    def __init__(
        self,
        names: dict[str, int],
        columns: Columns,
        planned_at: int,
        halls: Halls = NO_HALLS,
        cards: Cards = NO_CARDS,
        labels: Labels = EMPTY_LABELS,
    ) -> None:
        self.rows = names  # node name -> row, of the nodes that are there
        self.columns = columns
        self.planned_at = planned_at
        self.halls = halls
        self.cards = cards  # that these nodes have
        self.labels = labels
        self.memo: dict[object, object] = {}  # what readers compute once for this board
        self.since: ChangesSince | None = None  # if little has changed

    @classmethod
    def empty(cls) -> "TwinColumns":
        blank: Columns = {name: np.zeros(1, dtype) for name, dtype in _COLUMNS.items()}
        return cls({}, blank | _in_rooms(blank, NO_HALLS), 0)

    @classmethod
    def of(
        cls, nodes: Mapping[str, NodeState], planned_at: int, halls: Halls = NO_HALLS
    ) -> "TwinColumns":
        return cls.empty().updated(nodes.items(), planned_at, halls)

    @classmethod
    def of_state(cls, cluster_state: ClusterState) -> "TwinColumns":
        """All of a world at once."""
        return cls.empty().following(cluster_state, cluster_state.nodes, cluster_state.gpus)

    def __len__(self) -> int:
        return len(self.rows)

    def floats(self, name: str) -> Floats:
        return self.columns[name]

    def ints(self, name: str) -> Ints:
        return self.columns[name]

    def following(
        self,
        cluster_state: ClusterState,
        changes: Mapping[str, NodeState | None],
        cards: Mapping[str, CardState | None] = MappingProxyType({}),
    ) -> "TwinColumns":
        """The columns of `cluster_state`, of which these nodes and cards have changed."""
        twin_columns = self._following(cluster_state, changes)
        return twin_columns.holding(self.cards.following(cards, twin_columns.rows))

    def holding(self, cards: Cards) -> "TwinColumns":
        if cards is self.cards:
            return self
        twin_columns = TwinColumns(
            self.rows, self.columns, self.planned_at, self.halls, cards, self.labels
        )
        return self._followed_by(twin_columns, _NO_ROWS)

    def read(self, nodes: Collection[NodeState]) -> "TwinColumns":
        """The board of a world in which only readings of these nodes are others than on this one
        (`twins.is_only_read`). It is a third of the work, and most that happens are readings.
        """
        if not nodes:
            return self
        where = np.fromiter((node.ordinal + 1 for node in nodes), np.int64, len(nodes))
        values = zip(*map(reading_of, nodes), strict=True)
        columns = self.columns | {
            name: _with_values(self.columns[name], where, these)
            for name, these in zip(ReadingColumns._fields, values, strict=True)
        }
        twin_columns = TwinColumns(
            self.rows, columns, self.planned_at, self.halls, self.cards, self.labels
        )
        return self._followed_by(twin_columns, where)

    def _following(
        self, cluster_state: ClusterState, changes: Mapping[str, NodeState | None]
    ) -> "TwinColumns":
        halls = halls_of(cluster_state.facilities)
        if halls.names != self.halls.names:  # every node may now be somewhere else
            return self.updated(
                {**changes, **cluster_state.nodes}.items(), cluster_state.planned_at, halls
            )
        if not changes and (cluster_state.planned_at, halls) == (self.planned_at, self.halls):
            return self
        return self.updated(changes.items(), cluster_state.planned_at, halls)

    def updated(
        self,
        changes: Iterable[tuple[str, NodeState | None]],
        planned_at: int,
        halls: Halls = NO_HALLS,
    ) -> "TwinColumns":
        """A new board with some rows derived anew; this one stays as it is.

        While no node comes, goes or moves, `rows` is the very same mapping: who has looked names
        up in it need not do so again.
        """
        names = self.rows
        rows, blanks = list[tuple[int, TwinRow]](), list[int]()
        labelled: dict[int, Mapping[str, str]] = {}
        for name, node in changes:
            at = None if node is None else node.ordinal + 1
            left = names.get(name)
            if left != at:
                names = dict(names) if names is self.rows else names
                _move(names, name, at)
            # A node that went and came back between two boards has left its old row, too.
            if left is not None and left != at:
                blanks.append(left)
            if node is not None:
                rows.append((node.ordinal + 1, row_of(node, halls)))
                labelled[node.ordinal + 1] = node.labels
        height = max((at for at, _ in rows), default=0) + 1
        columns = {name: _blanked(self.columns[name], height, blanks) for name in _COLUMNS}
        where = np.array([at for at, _ in rows], np.int64)
        values = zip(*(_values_of(row) for _, row in rows), strict=True) if rows else ()
        for name, these in zip(_COLUMNS, values, strict=False):
            columns[name] = _with_values(columns[name], where, these)
        labels = self.labels.following({**dict.fromkeys(blanks, NO_LABELS), **labelled})
        touched = np.union1d(where, np.array(blanks, np.int64))
        columns |= self._rooms(columns, halls, touched)
        return self._followed_by(
            TwinColumns(names, columns, planned_at, halls, self.cards, labels), touched
        )

    def _rooms(self, columns: Columns, halls: Halls, touched: Ints) -> Columns:
        """What the rooms have to do with it; in the same ones only of rows that have changed."""
        if halls != self.halls or len(columns["at"]) > len(self.columns["at"]):
            return _in_rooms(columns, halls)
        changed = _in_rooms({name: columns[name][touched] for name in _ROOMS_REST_ON}, halls)
        return {
            name: _with_values(self.columns[name], touched, changed[name]) for name in _OF_ROOMS
        }

    def _followed_by(self, twin_columns: "TwinColumns", touched: Ints) -> "TwinColumns":
        """On which these rows are others, and what was worked out for the rest still holds."""
        same = (twin_columns.halls, twin_columns.planned_at) == (self.halls, self.planned_at)
        before = ChangesSince(self.memo, _NO_ROWS) if self.memo else self.since
        height = len(twin_columns.columns["at"])
        if before is not None and same and height == len(self.columns["at"]):
            rows = np.union1d(before.rows, touched)
            if len(rows) * ROWS_PER_CHANGE <= height:
                twin_columns.since = ChangesSince(before.memo, rows)
        return twin_columns

    def only(self, rows: Ints) -> "TwinColumns":
        """Of these rows, in this order: for those who look at columns, not at names."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return TwinColumns({}, columns, self.planned_at, self.halls)

    def rated(self) -> Rated:
        """The hardware of all rows."""
        return Rated.of(
            cores=self.floats("cores"),
            cpu_max_w=self.floats("cpu_max_w"),
            gpus=self.floats("gpus"),
            gpu_max_w=self.floats("gpu_max_w"),
            known=self.columns["hardware"] != Source.NONE,
        )

    def pods_w(self, coefficients: Coefficients) -> Floats:
        """What all pods of each node draw, by the model."""
        return self._modelled("pods", coefficients)

    def arrivals_w(self, coefficients: Coefficients) -> Floats:
        """The same of those that the node's last reading cannot be trusted to contain."""
        return self._modelled("new", coefficients)

    def _modelled(self, whose: str, coefficients: Coefficients) -> Floats:
        columns = (self.floats(f"{whose}_{part}_w") for part in LoadWatts._fields)
        return modelled_w(LoadWatts(*columns), coefficients)

    def predicted_headroom(self, cooling: Floats) -> Floats:
        return _headroom(self.columns, cooling)

    def updated_at(self, rows: Ints | slice = _ALL) -> Ints:
        """When each twin was last recomputed: by a fact about it, or by the operator's tick."""
        at = self.ints("at")[rows]
        return np.where(at > 0, np.maximum(at, self.planned_at), 0)


def _in_rooms(columns: Columns, halls: Halls) -> Columns:
    """What depends on the room too: rooms change all at once, and much more seldom than nodes."""
    hall, there = columns["hall"], columns["at"] > 0
    ambient, pue, polled = (np.array(values) for values in zip(*halls.halls, strict=True))
    ambient_c = ambient[hall]
    cooling = linear(Heat(columns["capped_w"], columns["tdp_w"], ambient_c))
    derived = (ambient_c, pue[hall], polled[hall], cooling, _headroom(columns, cooling))
    return {
        name: np.where(there, column, column.dtype.type(0))
        for name, column in zip(_OF_ROOMS, derived, strict=True)
    }


def _headroom(columns: Columns, cooling: Floats) -> Floats:
    """The share of its power that the caps leave a node, less what it is hard to cool."""
    caps: Ints = columns["cpu_cap_pct"] + columns["gpu_cap_pct"]
    return caps / 200 * (1 - cooling / 100) * 100


def _move(rows: dict[str, int], name: str, at: int | None) -> None:
    rows.pop(name, None)
    if at is not None:
        rows[name] = at


def _blanked(column: Column, height: int, blanks: list[int]) -> Column:
    """As high as it has to be, and with nothing in these rows."""
    if height <= len(column) and not blanks:
        return column
    blanked = np.zeros(max(height, len(column)), column.dtype)
    blanked[: len(column)] = column
    blanked[blanks] = 0
    return blanked


def _with_values(column: Column, where: Ints, values: npt.ArrayLike) -> Column:
    """With these values; the very same if it has them, as most columns do: readings change few."""
    said = np.asarray(values, column.dtype)
    if column[where].tobytes() == said.tobytes():
        return column
    written = column.copy()
    written[where] = said
    return written
