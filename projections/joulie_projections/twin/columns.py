"""The twins as columns: one row per node, one array per quantity, one value per position.

The extender, replay and the simulator score with the same columns. A row is derived only from its
node's state and its hall, so columns updated row by row equal columns built from all nodes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import copysign
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from joulie_bus.events import Candidates
from joulie_projections.state.cards import CardState
from joulie_projections.state.gpu_arrivals import PRIOR_DEMAND, GpuDemand
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.twin.arrays import Floats, Ints
from joulie_projections.twin.card_columns import Cards
from joulie_projections.twin.cooling import Heat, linear
from joulie_projections.twin.facility import NO_HALLS, Halls, halls_of
from joulie_projections.twin.gangs import Gangs
from joulie_projections.twin.labels import LabelRows
from joulie_projections.twin.power import Coefficients, LoadWatts, Rated, modelled_w
from joulie_projections.twin.twin import ReadingColumns, Source, TwinRow, reading_of, row_of

# The fields of `TwinRow`, in order.
_COLUMNS: dict[str, type] = {
    "present": np.bool_,
    "node_class": np.int8,
    "eco_label": np.bool_,
    "closed": np.bool_,
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
    "unit_milli": np.int64,
    "card_curve": np.int64,
    "hardware": np.int8,
    "hall": np.int16,
    "daemons_only": np.bool_,
    "pods_cpu_w": np.float64,
    "pods_warm_cpu_w": np.float64,
    "pods_gpu_standard_w": np.float64,
    "pods_gpu_performance_w": np.float64,
    "new_cpu_w": np.float64,
    "new_warm_cpu_w": np.float64,
    "new_gpu_standard_w": np.float64,
    "new_gpu_performance_w": np.float64,
}
# Columns that depend on the halls, computed for all rows at once.
_HALL_COLUMNS = ("ambient_c", "pue", "is_polled", "cooling", "headroom")
_HALL_INPUTS = ("hall", "at", "capped_w", "tdp_w", "cpu_cap_pct", "gpu_cap_pct")
_values_of = attrgetter(*_COLUMNS)

Column = npt.NDArray[Any]
Columns = dict[str, Column]
NO_CARDS = Cards.empty()
EMPTY_LABELS = LabelRows()
NOTHING: Mapping[str, Any] = MappingProxyType({})
NO_GANGS = Gangs()


def rows_of(candidates: Candidates) -> Ints:
    """Of the candidates of a decision, in columns of its position."""
    return np.frombuffer(candidates.ordinals, "<i4").astype(np.int64) + 1


class TwinColumns:
    """Immutable columns of all twins. Row 0 is all zeros and stands for unknown nodes."""

    def __init__(
        self,
        names: dict[str, int],
        columns: Columns,
        planned_at: int,
        halls: Halls = NO_HALLS,
        cards: Cards | Callable[[], Cards] = NO_CARDS,
        labels: LabelRows = EMPTY_LABELS,
    ) -> None:
        self.rows = names  # by node name, for existing nodes
        self.columns = columns
        self.planned_at = planned_at
        self.halls = halls
        self._cards: Cards | Callable[[], Cards] = cards
        self.labels = labels
        self.gpu_demand = PRIOR_DEMAND  # what pods ask of cards
        self.gangs = NO_GANGS  # where members of groups run
        self.memo: dict[object, object] = {}  # results that readers compute once for these columns

    @classmethod
    def empty(cls) -> "TwinColumns":
        blank: Columns = {name: np.zeros(1, dtype) for name, dtype in _COLUMNS.items()}
        return cls({}, blank | _computed_hall_columns(blank, NO_HALLS), 0)

    @classmethod
    def of(
        cls, nodes: Mapping[str, NodeState], planned_at: int, halls: Halls = NO_HALLS
    ) -> "TwinColumns":
        return cls.empty().updated(nodes.items(), planned_at, halls)

    @classmethod
    def of_state(cls, cluster_state: ClusterState) -> "TwinColumns":
        """The columns of a whole cluster state."""
        return cls.empty().following(cluster_state, cluster_state.nodes, cluster_state.gpus)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def cards(self) -> Cards:
        """The cards of these nodes."""
        if not isinstance(self._cards, Cards):
            self._cards = self._cards()
        return self._cards

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
        """The columns of `cluster_state`, in which only these nodes and cards have changed."""
        twin_columns = self._following(cluster_state, changes)
        twin_columns = twin_columns.with_gpu_demand(cluster_state.gpu_demand)
        return twin_columns.with_cards(self.cards.following(cards, twin_columns.rows))

    def with_cards(self, cards: Cards) -> "TwinColumns":
        """The same columns with these cards."""
        if cards is self.cards:
            return self
        return self._with(self.columns, cards)

    def with_gpu_demand(self, demand: GpuDemand) -> "TwinColumns":
        """The same columns with this demand."""
        if demand is self.gpu_demand:
            return self
        found = self._with(self.columns, self.cards)
        found.gpu_demand = demand
        return found

    def with_load(self, columns: Columns, cards: Callable[[], Cards]) -> "TwinColumns":
        """The same nodes with other columns of load, and other uses of cards, which are computed
        when they are read."""
        return self._with(columns, cards)

    def _with(self, columns: Columns, cards: Cards | Callable[[], Cards]) -> "TwinColumns":
        """The same nodes with other columns."""
        found = TwinColumns(self.rows, columns, self.planned_at, self.halls, cards, self.labels)
        found.gpu_demand, found.gangs = self.gpu_demand, self.gangs
        return found

    def with_readings(self, nodes: Collection[NodeState]) -> "TwinColumns":
        """The columns after changes that affect only readings (`differs_only_in_readings`).

        This costs a third of `updated`, and most changes are readings.
        """
        if not nodes:
            return self
        where = np.fromiter((node.ordinal + 1 for node in nodes), np.int64, len(nodes))
        values = zip(*map(reading_of, nodes), strict=True)
        return self.with_values(where, dict(zip(ReadingColumns._fields, values, strict=True)))

    def with_values(self, where: Ints, values: Mapping[str, npt.ArrayLike]) -> "TwinColumns":
        """The columns with these values of `ReadingColumns` in these rows."""
        columns = self.columns | {
            name: _with_values(self.columns[name], where, these) for name, these in values.items()
        }
        return self._with(columns, self.cards)

    def _following(
        self, cluster_state: ClusterState, changes: Mapping[str, NodeState | None]
    ) -> "TwinColumns":
        halls = halls_of(cluster_state.facilities)
        if halls.names != self.halls.names:  # every node may be in another hall now
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
        """New columns with these nodes changed.

        While no node is added, removed or moved, `rows` is the same object, so readers can keep
        results of lookups in it.
        """
        names = self.rows
        rows, blanks = list[tuple[int, TwinRow]](), list[int]()
        changed: dict[int, NodeState] = {}
        for name, node in changes:
            at = None if node is None else node.ordinal + 1
            old = names.get(name)
            if old != at:
                names = dict(names) if names is self.rows else names
                _move(names, name, at)
            # A node that was deleted and recreated since then has left its old row.
            if old is not None and old != at:
                blanks.append(old)
            if node is not None:
                rows.append((node.ordinal + 1, row_of(node, halls)))
                changed[node.ordinal + 1] = node
        columns = self._with_rows(rows, blanks)
        labels = self.labels.following(_of_rows(changed, blanks, "labels"))
        columns |= self._hall_columns(columns, halls, [*(at for at, _ in rows), *blanks])
        found = TwinColumns(names, columns, planned_at, halls, self.cards, labels)
        found.gpu_demand = self.gpu_demand
        found.gangs = self.gangs.following(_of_rows(changed, blanks, "gangs"))
        return found

    def _with_rows(self, rows: Sequence[tuple[int, TwinRow]], blanks: list[int]) -> Columns:
        height = max((at for at, _ in rows), default=0) + 1
        columns = dict(self.columns)
        if blanks or height > len(columns["at"]):
            columns = {name: _blanked(columns[name], height, blanks) for name in _COLUMNS}
        if len(rows) == 1:  # a pod is bound, which changes few columns
            at, row = rows[0]
            for name, value in zip(_COLUMNS, _values_of(row), strict=True):
                columns[name] = _with_value(columns[name], at, value)
        elif rows:
            where = np.array([at for at, _ in rows], np.int64)
            values = zip(*(_values_of(row) for _, row in rows), strict=True)
            for name, these in zip(_COLUMNS, values, strict=True):
                columns[name] = _with_values(columns[name], where, these)
        return columns

    def _hall_columns(self, columns: Columns, halls: Halls, rows: Sequence[int]) -> Columns:
        """The columns that depend on halls; while the halls are equal, only for changed rows."""
        if halls != self.halls or len(columns["at"]) > len(self.columns["at"]):
            return _computed_hall_columns(columns, halls)
        if all(columns[name] is self.columns[name] for name in _HALL_INPUTS):
            return {name: self.columns[name] for name in _HALL_COLUMNS}
        touched = np.unique(np.array(rows, np.int64))
        changed = _computed_hall_columns(
            {name: columns[name][touched] for name in _HALL_INPUTS}, halls
        )
        return {
            name: _with_values(self.columns[name], touched, changed[name]) for name in _HALL_COLUMNS
        }

    def rated(self) -> Rated:
        """The rated power of all rows."""
        return Rated.of(
            cores=self.floats("cores"),
            cpu_max_w=self.floats("cpu_max_w"),
            gpus=self.floats("gpus"),
            gpu_max_w=self.floats("gpu_max_w"),
            known=self.columns["hardware"] != Source.NONE,
        )

    def pods_w(self, coefficients: Coefficients) -> Floats:
        """The modelled power of each node's pods."""
        return self._modelled("pods", coefficients)

    def arrivals_w(self, coefficients: Coefficients) -> Floats:
        """The modelled power of pods that the node's last reading may not include."""
        return self._modelled("new", coefficients)

    def _modelled(self, group: str, coefficients: Coefficients) -> Floats:
        columns = (self.floats(f"{group}_{part}_w") for part in LoadWatts._fields)
        return modelled_w(LoadWatts(*columns), coefficients)

    def predicted_headroom(self, cooling: Floats) -> Floats:
        return _headroom(self.columns, cooling)

    def updated_at(self) -> Ints:
        """When each twin was last updated: by a fact about its node, or by a plan."""
        at = self.ints("at")
        return np.where(at > 0, np.maximum(at, self.planned_at), 0)


def _computed_hall_columns(columns: Columns, halls: Halls) -> Columns:
    """Computes the columns that depend on the halls."""
    hall, is_used = columns["hall"], columns["at"] > 0
    ambient, pue, polled = (np.array(values) for values in zip(*halls.halls, strict=True))
    ambient_c = ambient[hall]
    cooling = linear(Heat(columns["capped_w"], columns["tdp_w"], ambient_c))
    derived = (ambient_c, pue[hall], polled[hall], cooling, _headroom(columns, cooling))
    return {
        name: np.where(is_used, column, column.dtype.type(0))
        for name, column in zip(_HALL_COLUMNS, derived, strict=True)
    }


def _headroom(columns: Columns, cooling: Floats) -> Floats:
    """The share of power that the caps allow, reduced by the cooling stress."""
    caps: Ints = columns["cpu_cap_pct"] + columns["gpu_cap_pct"]
    return caps / 200 * (1 - cooling / 100) * 100


def _of_rows(changed: Mapping[int, NodeState], blanks: list[int], name: str) -> dict[int, Any]:
    """A mapping that nodes have, by row; none for rows that were left."""
    return dict.fromkeys(blanks, NOTHING) | {
        row: getattr(node, name) for row, node in changed.items()
    }


def _move(rows: dict[str, int], name: str, at: int | None) -> None:
    rows.pop(name, None)
    if at is not None:
        rows[name] = at


def _blanked(column: Column, height: int, blanks: list[int]) -> Column:
    """A column of at least this height, with zeros in these rows."""
    blanked = np.zeros(max(height, len(column)), column.dtype)
    blanked[: len(column)] = column
    blanked[blanks] = 0
    return blanked


def _with_value(column: Column, at: int, value: float) -> Column:
    """The column with this value; the same object if it already has it."""
    found = column.item(at)
    if found == value and (value or copysign(1, found) == copysign(1, value)):
        return column
    written = column.copy()
    written[at] = value
    return written


def _with_values(column: Column, where: Ints, values: npt.ArrayLike) -> Column:
    """The column with these values; the same object if it already has them."""
    wanted = np.asarray(values, column.dtype)
    if column[where].tobytes() == wanted.tobytes():
        return column
    written = column.copy()
    written[where] = wanted
    return written
