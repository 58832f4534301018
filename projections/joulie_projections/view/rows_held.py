"""What a view holds: rows, and the digest that they must have. No clock and no I/O in here."""

from collections.abc import Sequence

from joulie_projections.state import rows as rowlib
from joulie_projections.state.cards import CardState
from joulie_projections.state.deltas import unpack_digests
from joulie_projections.state.rows import Row
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.twin import differs_only_in_readings


class HeldRows:
    """Owned by one view; whoever boots it may do so in another thread."""

    def __init__(self) -> None:
        self.cluster_state = ClusterState()
        self.position = -1
        self._digests = rowlib.empty_digests()
        self._prints: dict[str, dict[str, int]] = {table: {} for table in rowlib.VIEWED}
        self._twin_columns = TwinColumns.empty()
        self._dirty: dict[str, NodeState | None] = {}
        self._read: dict[str, NodeState] = {}  # nothing else of these is dirty
        self._dirty_cards: dict[str, CardState | None] = {}
        self._is_settled = True  # nothing has come since the board was built

    def put(self, rows: Sequence[Row], position: int) -> None:
        before = {
            row.key: self.cluster_state.nodes.get(row.key) for row in rows if row.table == "node"
        }
        rowlib.apply_rows(self.cluster_state, rows)
        for name, node in before.items():
            self._keep_dirty(name, node)
        for row in rows:
            self._keep_digest(row)
            if row.table == "gpu":
                self._dirty_cards[row.key] = self.cluster_state.gpus.get(row.key)
        self.position = position
        self._is_settled = False

    def twin_columns(self) -> TwinColumns:
        """Built when somebody looks, so that a storm of changes costs one building."""
        if self._is_settled:
            return self._twin_columns
        twin_columns = self._twin_columns.following(
            self.cluster_state, self._dirty, self._dirty_cards
        )
        self._twin_columns = twin_columns.read(self._read.values())
        self._dirty, self._dirty_cards, self._read = {}, {}, {}
        self._is_settled = True
        return self._twin_columns

    def agrees(self, digests: dict[str, bytes]) -> bool:
        return all(
            self._digests[table] == value for table, value in unpack_digests(digests).items()
        )

    def _keep_dirty(self, name: str, before: NodeState | None) -> None:
        after = self.cluster_state.nodes.get(name)
        if name not in self._dirty and before and after and differs_only_in_readings(before, after):
            self._read[name] = after
        else:
            self._read.pop(name, None)
            self._dirty[name] = after

    def _keep_digest(self, row: Row) -> None:
        prints = self._prints[row.table]
        before, after = prints.get(row.key, 0), 0
        if row.body is not None:
            after = prints[row.key] = rowlib.fingerprint(row.table, row.key, row.body)
        else:
            prints.pop(row.key, None)
        total = self._digests[row.table] + after - before
        self._digests[row.table] = total % rowlib.MODULUS
