"""Reads the Merkle tree of the log: its checkpoints, and the subtrees that proofs consist of.

Tiles are stored. Subtrees inside a tile are computed from the hashes of the entries.
"""

from functools import cached_property

from joulie_bus.errors import NotInTheLog
from joulie_projections.chain import merkle
from joulie_projections.chain.merkle import TILE, Frontier
from joulie_projections.chain.note import LogCheckpoint, parse_checkpoint
from joulie_projections.history.history import NEWEST, History, TreeRow

NO_TREE = (
    "The log has no checkpoint yet: the projector of this version makes one within 10 s of its "
    "start, and for a log that was written before, after 5,000 entries a second."
)


class StoredTree:
    def __init__(self, history: History, first: TreeRow) -> None:
        self._history = history
        self.base = first.base
        self._subtrees = dict[tuple[int, int], bytes]()

    @classmethod
    def of(cls, history: History) -> "StoredTree | None":
        """None before the first checkpoint."""
        newest = history.newest_tree_row(NEWEST)
        return cls(history, newest) if newest is not None and newest.note else None

    @classmethod
    def required(cls, history: History) -> "StoredTree":
        if (found := cls.of(history)) is None:
            raise NotInTheLog(NO_TREE)
        return found

    @property
    def newest(self) -> LogCheckpoint:
        row = self._history.newest_tree_row(NEWEST)
        assert row is not None
        return parse_checkpoint(row.note)

    @cached_property
    def tiles(self) -> list[bytes]:
        return self._history.tree_tiles()

    def frontier_at(self, pos: int) -> Frontier:
        """Of the entries up to `pos`, as stored; raises NotInTheLog if a part is missing."""
        size = pos - self.base
        start = self.base + size // TILE * TILE
        made = Frontier()
        made.extend_tiles(self.tiles[: size // TILE])
        row = self._history.newest_tree_row(pos)
        if row is not None and row.pos > start:
            start = row.pos
            made = Frontier.of_tiles(start - self.base, self.tiles[: size // TILE], row.edge)
        made.extend(self._records(start + 1, pos))
        return made

    def know(self, pos: int) -> None:
        """Takes the subtrees of the tree up to an entry from its frontier: entries may be gone."""
        self._subtrees |= self.frontier_at(pos).subtrees()

    def subtree(self, first: int, last: int) -> bytes:
        """The root of the leaves from `first` to `last` (exclusive)."""
        if (known := self._subtrees.get((first, last))) is not None:
            return known
        if first % TILE or last - first < TILE:
            made = Frontier()
            made.extend(self._records(self.base + first + 1, self.base + last))
            return made.root
        made = Frontier()
        made.extend_tiles(self.tiles[first // TILE : last // TILE])
        rest = self.base + last // TILE * TILE
        made.extend(self._records(rest + 1, self.base + last))
        return made.root

    def inclusion(self, pos: int, checkpoint: LogCheckpoint) -> list[bytes]:
        return merkle.inclusion(self.subtree, pos - self.base - 1, checkpoint.size)

    def consistency(self, old: int, size: int) -> list[bytes]:
        if 0 < old < size:
            self.know(self.base + old)
        return merkle.consistency(self.subtree, old, size)

    def _records(self, first: int, last: int) -> list[bytes]:
        found = self._history.hashes(first, last)
        if len(found) != max(0, last - first + 1):
            raise NotInTheLog(
                f"The tree cannot be computed: entries from {first} to {last} are not in the "
                "database. Give --archive DIR, or set ARCHIVE_DIR, if they were trimmed."
            )
        return found
