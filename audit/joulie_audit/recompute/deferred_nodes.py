"""The nodes of a cluster state on which readings in columns wait.

A node that a fact or a plan reads is brought up to date alone. The columns of the twins get what
all waiting readings leave from arrays, without a state of each node.
"""

from collections.abc import Callable, Iterator

import numpy as np

from joulie_audit.recompute.column_part import Ints
from joulie_audit.recompute.foldable import Flags, Foldable
from joulie_projections.fold.newest_readings import NewestReadings, NodeReadings
from joulie_projections.fold.node_facts import with_reading
from joulie_projections.state.state import NodeState, State
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.trends import trends_w_per_min

Note = Callable[[str, str, State | None], None]  # called before readings change a row
_NO_FLAGS: Flags = np.zeros(0, np.bool_)
_NO_INTS: Ints = np.zeros(0, np.int64)


class DeferredNodes:
    """Everything before the row `limit` of the part counts as folded."""

    def __init__(self, nodes: dict[str, NodeState], note: Note) -> None:
        self._nodes, self._note = nodes, note
        self.limit = 0
        self.has_lost = False  # a node of the part
        self.changed: dict[str, NodeState] = {}  # by readings that were folded one by one
        self._newest = NewestReadings()
        self._rows: dict[str, int] = {}  # of the arrays, by node
        self._names: list[str] = []
        # Whether the arrays hold the node; whether they hold more readings than its state has;
        # whether these are not in columns of the twins yet.
        self._is_loaded, self._is_ahead, self._is_unseen = _NO_FLAGS, _NO_FLAGS, _NO_FLAGS
        self._todo: Foldable | None = None
        self._sources = self._providers = _NO_INTS  # numbers in the arrays, by that of the part
        self._here: dict[str, int] = {}  # the nodes of the part
        self._row_of: Ints = _NO_INTS  # by node of the part
        self._done: Ints = _NO_INTS  # readings that were folded, by node of the part
        self._reached = 0  # how many readings `catch_up` has looked at

    def begin(self, todo: Foldable) -> None:
        """Of a part, or of what is left of one. All readings before it were caught up."""
        read = todo.part.readings
        self._todo, self._reached = todo, 0
        self._here = {name: at for at, name in enumerate(read.nodes)}
        new = [name for name in read.nodes if name not in self._rows]
        self._rows.update((name, row) for row, name in enumerate(new, len(self._names)))
        self._names += new
        self._grow(len(new))
        self._row_of = np.array([self._rows[name] for name in read.nodes], np.int64)
        self._done = np.zeros(len(read.nodes), np.int64)
        self._sources, self._providers = (
            np.array([self._newest.number_of(text) for text in texts], np.int64)
            for texts in (read.sources, read.providers)
        )

    def _grow(self, count: int) -> None:
        self._newest.grow(len(self._names))
        self._is_loaded, self._is_ahead, self._is_unseen = (
            np.append(flags, np.zeros(count, np.bool_))
            for flags in (self._is_loaded, self._is_ahead, self._is_unseen)
        )

    # --- one node -------------------------------------------------------------------------------

    def get(self, key: str, /) -> NodeState | None:
        row = self._rows.get(key)
        if row is not None:
            self._settle(key, row)
            if (at := self._here.get(key)) is not None:
                self._fold_singly(at)
        return self._nodes.get(key)

    def update(self, kept: dict[str, NodeState], /) -> None:
        self._nodes.update(kept)
        for name in kept:
            self._forget(name)

    def pop(self, key: str, default: None, /) -> object:
        self.has_lost |= key in self._here
        self._forget(key)
        return self._nodes.pop(key, default)

    def _forget(self, name: str) -> None:
        """What the arrays hold is older now."""
        row = self._rows.get(name)
        if row is not None:
            self._is_loaded[row] = self._is_ahead[row] = self._is_unseen[row] = False

    def _settle(self, name: str, row: int) -> None:
        if self._is_ahead[row]:
            before = self._nodes[name]
            self._note("node", name, before)
            self._nodes[name] = self._newest.node_after(row, before)
            self._is_ahead[row] = False

    def _fold_singly(self, at: int) -> None:
        """The readings of a node that wait, by its state."""
        todo = self._todo
        assert todo is not None
        waiting = todo.by_node.of(at)[self._done[at] :]
        count = int(np.searchsorted(todo.read.row[waiting], self.limit)) if len(waiting) else 0
        if not count:
            return
        name = todo.part.readings.nodes[at]
        self._settle(name, self._rows[name])
        node = self._nodes[name]
        self._note("node", name, node)
        for place in waiting[:count].tolist():
            node = with_reading(node, *todo.sampled(place))
        self._done[at] += count
        self.update({name: node})
        self.changed[name] = node

    # --- all nodes ------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Folds all readings that wait: into the arrays, where they can hold the node."""
        todo = self._todo
        if todo is None:
            return
        waiting = np.arange(self._reached, todo.count_before(self.limit))
        self._reached += len(waiting)
        waiting = waiting[todo.by_node.rank[waiting] >= self._done[todo.read.node[waiting]]]
        if not len(waiting):
            return
        count = np.bincount(todo.read.node[waiting], minlength=len(self._here))
        is_held = self._loaded(np.flatnonzero(count))
        for at in np.flatnonzero((count > 0) & ~is_held).tolist():
            self._fold_singly(at)
        for turn in self._turns(todo, waiting[is_held[todo.read.node[waiting]]]):
            self._newest.fold(self._readings_at(todo, turn))
        self._done[is_held] += count[is_held]
        rows = self._row_of[is_held]
        self._is_ahead[rows] = self._is_unseen[rows] = True

    def _loaded(self, nodes: Ints) -> Flags:
        """Loads these nodes of the part; which of them the arrays hold."""
        rows = self._row_of[nodes]
        for row in rows[~self._is_loaded[rows]].tolist():
            node = self._nodes[self._names[row]]
            if self._newest.can_hold(node):
                self._newest.load(row, node)
                self._is_loaded[row] = True
        is_held = np.zeros(len(self._here), np.bool_)
        is_held[nodes] = self._is_loaded[rows]
        return is_held

    def _turns(self, todo: Foldable, waiting: Ints) -> Iterator[Ints]:
        """The next reading of each node, then the one after it, and so on."""
        turn = todo.by_node.rank[waiting] - self._done[todo.read.node[waiting]]
        order = np.argsort(turn, kind="stable")
        yield from np.split(waiting[order], np.cumsum(np.bincount(turn))[:-1]) if len(turn) else ()

    def _readings_at(self, todo: Foldable, places: Ints) -> NodeReadings:
        read = todo.read
        return NodeReadings(
            self._row_of[read.node[places]],
            read.at[places],
            read.late_ms[places],
            read.power_mw[places],
            self._sources[read.source[places]],
            self._providers[read.provider[places]],
        )

    def settle(self) -> None:
        """Brings up the states of all nodes."""
        self.catch_up()
        for row in np.flatnonzero(self._is_ahead).tolist():
            self._settle(self._names[row], row)

    def seen_in(self, twin_columns: TwinColumns) -> TwinColumns:
        """The columns of the twins with the readings that they lack."""
        rows = np.flatnonzero(self._is_unseen)
        if not len(rows):
            return twin_columns
        self._is_unseen[rows] = False
        made_at, power_mw, count = self._newest.samples_of(rows)
        newest = np.arange(len(rows)), count - 1
        values = {
            "at": self._newest.at[rows],
            "sampled_at": made_at[newest],
            "measured_w": power_mw[newest] / 1000,
            "trend_w_per_min": trends_w_per_min(made_at, power_mw, count),
        }
        names = (self._names[row] for row in rows.tolist())
        where = np.fromiter((twin_columns.rows[name] for name in names), np.int64, len(rows))
        return twin_columns.with_values(where, values)
