"""What a view holds: rows, and the digest that they must have. No clock and no I/O in here."""

from collections.abc import Sequence

from joulie_projections import rows as rowlib
from joulie_projections.board import Board
from joulie_projections.cards import CardState
from joulie_projections.live import unpacked
from joulie_projections.rows import Row
from joulie_projections.twins import is_only_read
from joulie_projections.world import NodeState, World


class Held:
    """Owned by one view; whoever boots it may do so in another thread."""

    def __init__(self) -> None:
        self.world = World()
        self.position = -1
        self._digests = rowlib.no_rows()
        self._prints: dict[str, dict[str, int]] = {table: {} for table in rowlib.VIEWED}
        self._board = Board.empty()
        self._dirty: dict[str, NodeState | None] = {}
        self._read: dict[str, NodeState] = {}  # nothing else of these is dirty
        self._dirty_cards: dict[str, CardState | None] = {}
        self._is_settled = True  # nothing has come since the board was built

    def put(self, rows: Sequence[Row], position: int) -> None:
        before = {row.key: self.world.nodes.get(row.key) for row in rows if row.table == "node"}
        rowlib.put(self.world, rows)
        for name, node in before.items():
            self._keep_dirty(name, node)
        for row in rows:
            self._keep_digest(row)
            if row.table == "gpu":
                self._dirty_cards[row.key] = self.world.gpus.get(row.key)
        self.position = position
        self._is_settled = False

    def board(self) -> Board:
        """Built when somebody looks, so that a storm of changes costs one building."""
        if self._is_settled:
            return self._board
        board = self._board.following(self.world, self._dirty, self._dirty_cards)
        self._board = board.read(self._read.values())
        self._dirty, self._dirty_cards, self._read = {}, {}, {}
        self._is_settled = True
        return self._board

    def agrees(self, digests: dict[str, bytes]) -> bool:
        return all(self._digests[table] == value for table, value in unpacked(digests).items())

    def _keep_dirty(self, name: str, before: NodeState | None) -> None:
        after = self.world.nodes.get(name)
        if name not in self._dirty and before and after and is_only_read(before, after):
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
