"""Computes the Merkle tree again along a walk of the chain."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from joulie_bus.errors import NotInTheLog
from joulie_projections.chain.merkle import TILE, Frontier
from joulie_projections.history.history import History
from joulie_projections.history.stored_tree import StoredTree


class TreeWalk(NamedTuple):
    """The roots before the first entry, after the last, and at signed entries.

    Empty if the log has no tree.
    """

    start: bytes = b""  # as stored
    end: bytes = b""
    at: Mapping[int, bytes] = {}
    wrong_tile: int = 0  # the last entry of a stored tile that differs from the entries


class TreeFollower:
    """Without a tree, does nothing."""

    def __init__(self, stored: StoredTree | None = None, frontier: Frontier | None = None) -> None:
        self._base = stored.base if stored is not None else 0
        self._tiles = stored.tiles if stored is not None else []
        self._frontier = frontier
        self._start = frontier.root if frontier is not None else b""
        self._at: dict[int, bytes] = {}
        self._wrong_tile = 0

    @classmethod
    def after(cls, history: History, pos: int) -> "TreeFollower | None":
        """None if the stored tree lacks the part up to this entry."""
        stored = StoredTree.of(history)
        if stored is None or pos < stored.base:
            return cls()
        try:
            return cls(stored, stored.frontier_at(pos))
        except (NotInTheLog, ValueError):
            return None

    def extend(self, before: int, hashes: Sequence[bytes], of_heads: Sequence[int]) -> None:
        """Adds the entries after `before`; `of_heads` are those whose root is wanted."""
        frontier, done = self._frontier, 0
        if frontier is None:
            return
        for at in of_heads:
            self._add(frontier, hashes[done : at - before])
            self._at[at], done = frontier.root, at - before
        self._add(frontier, hashes[done:])

    def _add(self, frontier: Frontier, hashes: Sequence[bytes]) -> None:
        number = frontier.size // TILE
        found = frontier.extend(hashes)
        if (
            found
            and self._tiles[number : number + len(found)] != found[: len(self._tiles) - number]
        ):
            self._wrong_tile = self._wrong_tile or self._base + (number + 1) * TILE

    def result(self) -> TreeWalk:
        end = self._frontier.root if self._frontier is not None else b""
        return TreeWalk(self._start, end, self._at, self._wrong_tile)
