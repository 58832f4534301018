"""The Merkle tree is that of RFC 6962, however it was put together."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_projections.chain.merkle import (
    EMPTY_ROOT,
    Frontier,
    consistency,
    inclusion,
    is_consistent,
    is_included,
    leaf_of,
    parent_of,
    split,
)

RECORDS = [bytes([at % 256, at // 256]) * 16 for at in range(700)]
sizes = st.integers(1, len(RECORDS))


def root_of(records: list[bytes]) -> bytes:
    """The definition in RFC 6962."""
    if len(records) < 2:
        return leaf_of(records[0]) if records else EMPTY_ROOT
    middle = split(0, len(records))
    return parent_of(root_of(records[:middle]), root_of(records[middle:]))


def subtree(first: int, last: int) -> bytes:
    return root_of(RECORDS[first:last])


@settings(max_examples=20, deadline=None)
@given(sizes, st.integers(0, 2**32))
def test_a_tree_that_grows_in_any_steps_has_the_root_of_the_rfc(size: int, seed: int) -> None:
    chance, made, tiles = random.Random(seed), Frontier(), list[bytes]()
    while made.size < size:
        step = min(chance.choice([1, 3, 100, 256, 300]), size - made.size)
        tiles += made.extend(RECORDS[made.size : made.size + step])

    assert made.root == root_of(RECORDS[:size])
    assert Frontier.of_tiles(size, tiles, made.edge).root == made.root
    assert Frontier(size, made.roots).root == made.root
    assert all(root == subtree(*span) for span, root in made.subtrees().items())


@settings(max_examples=20, deadline=None)
@given(sizes, st.data())
def test_a_leaf_is_included_at_its_index_alone(size: int, data: st.DataObject) -> None:
    at, other = (data.draw(st.integers(0, size - 1)) for _ in range(2))
    path, root = inclusion(subtree, at, size), subtree(0, size)

    assert is_included(leaf_of(RECORDS[at]), at, size, path, root)
    if other != at:
        assert not is_included(leaf_of(RECORDS[at]), other, size, path, root)
        assert not is_included(leaf_of(RECORDS[other]), at, size, path, root)


@settings(max_examples=20, deadline=None)
@given(sizes, st.data())
def test_a_tree_extends_its_older_ones_and_no_other(size: int, data: st.DataObject) -> None:
    old = data.draw(st.integers(0, size))
    proof, root = consistency(subtree, old, size), subtree(0, size)

    assert is_consistent(old, subtree(0, old), size, root, proof)
    if old:
        assert not is_consistent(old, leaf_of(b"another"), size, root, proof)
        assert not is_consistent(old, subtree(0, old), size, root, [*proof, root])
