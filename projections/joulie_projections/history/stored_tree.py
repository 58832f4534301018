"""Reads the Merkle tree of the log: the subtrees that proofs consist of.

Tiles are stored. Subtrees inside a tile are computed from the hashes of the entries.
"""

from functools import cached_property

from joulie_bus.errors import NotInTheLog
from joulie_projections.chain import merkle
from joulie_projections.chain.head import Head
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.merkle import TILE, Frontier, frontier_of
from joulie_projections.history.history import NEWEST, History

NO_HEAD = "The log has no head yet: the projector signs one within 10 s of its first entry."


def newest_head(history: History, ring: Ring) -> Head:
    """The newest one that a key of the log signed; raises NotInTheLog if there is none."""
    found = (head for head in history.heads_before(NEWEST) if not ring.flaw_of(head))
    if (newest := next(found, None)) is None:
        raise NotInTheLog(NO_HEAD)
    return newest


class StoredTree:
    def __init__(self, history: History) -> None:
        self._history = history
        self._subtrees = dict[tuple[int, int], bytes]()

    @cached_property
    def tiles(self) -> list[bytes]:
        return self._history.tree_tiles()

    def frontier_at(self, pos: int) -> Frontier:
        """Of the entries up to `pos`, as stored; raises NotInTheLog if a part is missing."""
        edge = self._history.tree_edge(self.tiles)
        if len(self.tiles) < pos // TILE:
            raise NotInTheLog(f"The tree lacks a tile before entry {pos}. Nothing was computed.")
        return frontier_of(pos, self.tiles, self._records, edge)

    def know(self, pos: int) -> None:
        """Takes the subtrees of the tree up to an entry from its frontier: entries may be gone."""
        self._subtrees |= self.frontier_at(pos).subtrees()

    def subtree(self, first: int, last: int) -> bytes:
        """The root of the leaves from `first` to `last` (exclusive)."""
        if (known := self._subtrees.get((first, last))) is not None:
            return known
        made = Frontier()
        if first % TILE or last - first < TILE:
            made.extend(self._records(first + 1, last))
            return made.root
        made.extend_tiles(self.tiles[first // TILE : last // TILE])
        made.extend(self._records(last // TILE * TILE + 1, last))
        return made.root

    def inclusion(self, pos: int, size: int) -> list[bytes]:
        return merkle.inclusion(self.subtree, pos - 1, size)

    def consistency(self, old: int, size: int) -> list[bytes]:
        if 0 < old < size:
            self.know(old)
        return merkle.consistency(self.subtree, old, size)

    def _records(self, first: int, last: int) -> list[bytes]:
        found = self._history.hashes(first, last)
        if len(found) != max(0, last - first + 1):
            raise NotInTheLog(
                f"The tree cannot be computed: entries from {first} to {last} are not in the "
                "database. Give --archive DIR, or set ARCHIVE_DIR, if they were trimmed."
            )
        return found
