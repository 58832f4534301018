"""The rows of a view and their digests."""

from collections.abc import Sequence

from joulie_projections.state import rows as rowlib
from joulie_projections.state.cards import CardState
from joulie_projections.state.deltas import unpack_digests
from joulie_projections.state.rows import Row
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.twin import differs_only_in_readings


class HeldRows:
    """Rows and digests at a position. Has one owner; may be filled in another thread."""

    def __init__(self) -> None:
        self.cluster_state = ClusterState()
        self.position = -1
        self._digests = rowlib.empty_digests()
        self._fingerprints: dict[str, dict[str, int]] = {table: {} for table in rowlib.VIEWED}
        self._twin_columns = TwinColumns.empty()
        self._dirty: dict[str, NodeState | None] = {}
        self._read: dict[str, NodeState] = {}  # nodes of which only readings changed
        self._dirty_cards: dict[str, CardState | None] = {}
        self._is_current = True  # no change since the columns were built

    def put(self, rows: Sequence[Row], position: int) -> None:
        """Applies committed rows up to a position."""
        before = {
            row.key: self.cluster_state.nodes.get(row.key) for row in rows if row.table == "node"
        }
        rowlib.apply_rows(self.cluster_state, rows)
        for name, node in before.items():
            self._mark_dirty(name, node)
        for row in rows:
            self._update_digest(row)
            if row.table == "gpu":
                self._dirty_cards[row.key] = self.cluster_state.gpus.get(row.key)
        self.position = position
        self._is_current = False

    @property
    def nodes_changed(self) -> int:
        """Since the columns were built."""
        return len(self._dirty) + len(self._read)

    def twin_columns(self) -> TwinColumns:
        """The columns of the twins, built on demand, so that a burst of changes is built once."""
        if self._is_current:
            return self._twin_columns
        twin_columns = self._twin_columns.following(
            self.cluster_state, self._dirty, self._dirty_cards
        )
        self._twin_columns = twin_columns.with_readings(self._read.values())
        self._dirty, self._dirty_cards, self._read = {}, {}, {}
        self._is_current = True
        return self._twin_columns

    def matches(self, digests: dict[str, bytes]) -> bool:
        """Reports whether the rows match these digests of the projector."""
        return all(
            self._digests[table] == value for table, value in unpack_digests(digests).items()
        )

    def _mark_dirty(self, name: str, before: NodeState | None) -> None:
        after = self.cluster_state.nodes.get(name)
        if name not in self._dirty and before and after and differs_only_in_readings(before, after):
            self._read[name] = after
        else:
            self._read.pop(name, None)
            self._dirty[name] = after

    def _update_digest(self, row: Row) -> None:
        fingerprints = self._fingerprints[row.table]
        before, after = fingerprints.get(row.key, 0), 0
        if row.body is not None:
            after = fingerprints[row.key] = rowlib.fingerprint(row.table, row.key, row.body)
        else:
            fingerprints.pop(row.key, None)
        total = self._digests[row.table] + after - before
        self._digests[row.table] = total % rowlib.MODULUS
