"""Computes the Merkle tree again along a walk of the chain."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from joulie_bus.errors import NotInTheLog
from joulie_projections.chain.merkle import TILE, Frontier
from joulie_projections.history.history import History
from joulie_projections.history.stored_tree import StoredTree


class TreeWalk(NamedTuple):
    """The roots before the first entry, after the last, and at signed entries."""

    start: bytes  # as stored
    end: bytes
    at: Mapping[int, bytes]
    wrong_tile: int = 0  # the last entry of a stored tile that differs from the entries


class TreeFollower:
    def __init__(self, tiles: Sequence[bytes] = (), frontier: Frontier | None = None) -> None:
        self._tiles = tiles
        self._frontier = frontier or Frontier()
        self._start = self._frontier.root
        self._at: dict[int, bytes] = {}
        self._wrong_tile = 0

    @classmethod
    def after(cls, history: History, pos: int) -> "TreeFollower | None":
        """None if the stored tree lacks the part up to this entry."""
        stored = StoredTree(history)
        try:
            return cls(stored.tiles, stored.frontier_at(pos))
        except (NotInTheLog, ValueError):
            return None

    def extend(self, before: int, hashes: Sequence[bytes], of_heads: Sequence[int]) -> None:
        """Adds the entries after `before`; `of_heads` are those whose root is wanted."""
        done = 0
        for at in of_heads:
            self._add(hashes[done : at - before])
            self._at[at], done = self._frontier.root, at - before
        self._add(hashes[done:])

    def _add(self, hashes: Sequence[bytes]) -> None:
        number = self._frontier.size // TILE
        found = self._frontier.extend(hashes)
        known = list(self._tiles[number : number + len(found)])
        if known != found[: len(known)]:
            self._wrong_tile = self._wrong_tile or (number + 1) * TILE

    def result(self) -> TreeWalk:
        return TreeWalk(self._start, self._frontier.root, self._at, self._wrong_tile)
