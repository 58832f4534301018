"""The subtrees at a cut, from which the Merkle tree continues where entries were trimmed."""

from collections.abc import Iterable, Sequence

from joulie_projections.chain.head import head_in
from joulie_projections.chain.merkle import NO_EDGE, TILE, Edge, Frontier
from joulie_projections.fold.commit import Cut


def edge_of(cuts: Iterable[Cut], tiles: Sequence[bytes]) -> Edge:
    """Of the newest of `cuts` whose subtrees lead to the root of its head.

    The role of the trimmer can record a cut with any subtrees.
    """
    return next((Edge(cut.pos, cut.edge) for cut in cuts if _leads_to_root(cut, tiles)), NO_EDGE)


def _leads_to_root(cut: Cut, tiles: Sequence[bytes]) -> bool:
    head, whole = head_in(cut.note), cut.pos // TILE
    if head is None or len(cut.edge) != (cut.pos % TILE).bit_count() * 32 or len(tiles) < whole:
        return False
    return Frontier.of_tiles(cut.pos, tiles[:whole], cut.edge).root == head.checkpoint.root
