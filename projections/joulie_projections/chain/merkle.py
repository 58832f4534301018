"""The Merkle tree over the entries of the log, hashed as in RFC 6962.

A leaf is the chained hash of an entry. The tree is kept as its frontier, the roots of its perfect
subtrees, and as the roots of its tiles of 256 leaves: a path inside a tile is computed from the
hashes of its entries.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

TILE_LEVEL = 8
TILE = 1 << TILE_LEVEL  # leaves
EMPTY_ROOT = sha256(b"").digest()
MAX_LEVELS = 63

Subtree = Callable[[int, int], bytes]  # the root of the leaves from a first to a last (exclusive)


def leaf_of(record: bytes) -> bytes:
    return sha256(b"\0" + record).digest()


def parent_of(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()


class Frontier:
    """The roots of the perfect subtrees that a tree of this size consists of, by their level."""

    def __init__(self, size: int = 0, roots: Sequence[bytes] = ()) -> None:
        """`roots` from the lowest level upward."""
        self.size = size
        self._roots = [b""] * (MAX_LEVELS + 1)
        levels = [level for level in range(size.bit_length()) if size >> level & 1]
        for level, root in zip(levels, roots, strict=True):
            self._roots[level] = root

    def copied(self) -> "Frontier":
        return Frontier(self.size, self.roots)

    def extend(self, records: Sequence[bytes]) -> list[bytes]:
        """Adds leaves; returns the roots of the tiles that they complete."""
        nodes = [sha256(b"\0" + record).digest() for record in records]
        self.size += len(nodes)
        return self._join(nodes, 0)

    def extend_tiles(self, roots: Sequence[bytes]) -> None:
        """Adds whole tiles to a tree of whole tiles."""
        self.size += len(roots) * TILE
        self._join(list(roots), TILE_LEVEL)

    def _join(self, nodes: list[bytes], level: int) -> list[bytes]:
        tiles = list[bytes]()
        kept = self._roots
        while nodes:
            if level == TILE_LEVEL:
                tiles = list(nodes)
            if kept[level]:
                nodes.insert(0, kept[level])
            kept[level] = nodes.pop() if len(nodes) % 2 else b""
            pairs = iter(nodes)
            nodes = [
                sha256(b"\1" + left + right).digest()
                for left, right in zip(pairs, pairs, strict=True)
            ]
            level += 1
        return tiles

    @property
    def roots(self) -> list[bytes]:
        return [root for root in self._roots if root]

    @property
    def edge(self) -> bytes:
        """The subtrees that are smaller than a tile, as `of_tiles` reads them."""
        return b"".join(self._roots[:TILE_LEVEL])

    @classmethod
    def of_tiles(cls, size: int, tiles: Sequence[bytes], edge: bytes) -> "Frontier":
        """The frontier of a tree of this size; `tiles` are the roots of all its whole tiles."""
        below = [edge[at : at + 32] for at in range(0, len(edge), 32)]
        made = cls()
        made.extend_tiles(tiles)
        return cls(size, [*below, *made.roots])

    @property
    def root(self) -> bytes:
        found = b""
        for root in self.roots:
            found = parent_of(root, found) if found else root
        return found or EMPTY_ROOT

    def subtrees(self) -> dict[tuple[int, int], bytes]:
        """The roots by the leaves under them."""
        found, end = dict[tuple[int, int], bytes](), self.size
        for level, root in enumerate(self._roots):
            if root:
                found[end - (1 << level), end] = root
                end -= 1 << level
        return found


class Edge(NamedTuple):
    """The subtrees beside the last whole tile of a tree of this size: `Frontier.edge`."""

    size: int
    subtrees: bytes


NO_EDGE = Edge(0, b"")
Records = Callable[[int, int], Sequence[bytes]]  # from a first to a last one, both included


def frontier_of(
    size: int, tiles: Sequence[bytes], records: Records, edge: Edge = NO_EDGE
) -> Frontier:
    """The frontier of the first `size` records; `tiles` are the roots of at least its whole tiles.

    The records behind them are hashed, or only those after `edge` if it lies among them.
    """
    start = size // TILE * TILE
    if start < edge.size <= size:
        made, start = Frontier.of_tiles(edge.size, tiles[: size // TILE], edge.subtrees), edge.size
    else:
        made = Frontier()
        made.extend_tiles(tiles[: size // TILE])
    made.extend(records(start + 1, size))
    return made


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Of hashed leaves."""
    made = Frontier()
    made.size = len(leaves)
    made._join(list(leaves), 0)
    return made.root


def split(first: int, last: int) -> int:
    """Where the tree of these leaves is divided in two."""
    return first + (1 << (last - first - 1).bit_length() - 1)


# --- proofs -------------------------------------------------------------------------------------


def inclusion(subtree: Subtree, index: int, size: int) -> list[bytes]:
    """The path from a leaf up to the root: RFC 6962, 2.1.1."""
    path, first, last = list[bytes](), 0, size
    while last - first > 1:
        middle = split(first, last)
        if index < middle:
            path.append(subtree(middle, last))
            last = middle
        else:
            path.append(subtree(first, middle))
            first = middle
    return path[::-1]


def consistency(subtree: Subtree, old: int, size: int) -> list[bytes]:
    """The proof that a tree extends its older one: RFC 6962, 2.1.2. Empty if `old` is 0 or all."""
    if old in (0, size):
        return []
    path, first, last = list[bytes](), 0, size
    while old != last:
        middle = split(first, last)
        if old <= middle:
            path.append(subtree(middle, last))
            last = middle
        else:
            path.append(subtree(first, middle))
            first = middle
    if first:
        path.append(subtree(first, last))
    return path[::-1]


def is_included(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """RFC 9162, 2.1.3.2."""
    if not 0 <= index < size:
        return False
    found, at, last = leaf, index, size - 1
    for node in path:
        if last == 0:
            return False
        if at % 2 or at == last:
            found = parent_of(node, found)
            while at % 2 == 0 and at:
                at, last = at >> 1, last >> 1
        else:
            found = parent_of(found, node)
        at, last = at >> 1, last >> 1
    return last == 0 and found == root


def is_consistent(
    old: int, old_root: bytes, size: int, root: bytes, proof: Sequence[bytes]
) -> bool:
    """RFC 9162, 2.1.4.2."""
    if old in (0, size):
        return not proof and (old == 0 or old_root == root)
    if not 0 < old < size or not proof:
        return False
    nodes = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    at, last = old - 1, size - 1
    while at % 2:
        at, last = at >> 1, last >> 1
    was = now = nodes[0]
    for node in nodes[1:]:
        if last == 0:
            return False
        if at % 2 or at == last:
            was, now = parent_of(node, was), parent_of(node, now)
            while at % 2 == 0 and at:
                at, last = at >> 1, last >> 1
        else:
            now = parent_of(now, node)
        at, last = at >> 1, last >> 1
    return last == 0 and (was, now) == (old_root, root)
