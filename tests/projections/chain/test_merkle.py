"""The Merkle tree is that of RFC 6962, however it was put together."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_projections.chain import merkle
from joulie_projections.chain.merkle import (
    EMPTY_ROOT,
    TILE,
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


def other_proofs(proof: list[bytes]) -> list[list[bytes]]:
    """A proof without one of its hashes, with one too many, or with a changed one."""
    shorter = [[*proof[:at], *proof[at + 1 :]] for at in range(len(proof))]
    changed = [[*proof[:at], EMPTY_ROOT, *proof[at + 1 :]] for at in range(len(proof))]
    return [*shorter, *changed, [*proof, EMPTY_ROOT], [EMPTY_ROOT, *proof]]


@pytest.mark.parametrize("size", range(1, 10))
def test_a_leaf_is_included_by_its_own_path_alone(size: int) -> None:
    root = subtree(0, size)
    for at in range(size):
        leaf, path = leaf_of(RECORDS[at]), inclusion(subtree, at, size)

        assert is_included(leaf, at, size, path, root)
        assert not any(is_included(leaf, at, size, each, root) for each in other_proofs(path))
        assert not is_included(leaf, at, size, path, EMPTY_ROOT)
        assert not is_included(leaf, at - size, size, path, root)
        assert not is_included(leaf, at + size, size, path, root)


@pytest.mark.parametrize("size", range(1, 10))
def test_a_tree_extends_an_older_one_by_its_own_proof_alone(size: int) -> None:
    root = subtree(0, size)
    for old in range(size + 1):
        older, proof = subtree(0, old), consistency(subtree, old, size)

        assert is_consistent(old, older, size, root, proof)
        assert not any(is_consistent(old, older, size, root, each) for each in other_proofs(proof))
        assert not is_consistent(old - size - 1, older, size, root, proof)
        assert not is_consistent(old + size + 1, older, size, root, proof)
        if old:
            assert not is_consistent(old, EMPTY_ROOT, size, root, proof)
            assert not is_consistent(old, older, size, EMPTY_ROOT, proof)


def test_every_tree_extends_the_empty_one_without_a_proof() -> None:
    assert consistency(subtree, 0, 7) == []
    assert is_consistent(0, b"any root", 7, subtree(0, 7), [])


def test_whole_tiles_are_added_to_a_tree_of_whole_tiles() -> None:
    tiles = [subtree(at, at + TILE) for at in (0, TILE)]
    made = Frontier()
    made.extend_tiles(tiles)

    assert (made.size, made.root) == (512, subtree(0, 512))
    assert made.subtrees() == {(0, 512): subtree(0, 512)}
    assert made.extend(RECORDS[512:515]) == []
    assert made.root == subtree(0, 515)


def test_the_root_of_hashed_leaves_is_that_of_their_tree() -> None:
    leaves = list(map(leaf_of, RECORDS))

    assert merkle.root_of([]) == EMPTY_ROOT
    assert merkle.root_of(leaves[:300]) == root_of(RECORDS[:300])


def test_a_tree_has_room_for_every_position_of_the_log() -> None:
    most = 2**63 - 1

    assert len(Frontier(most, [EMPTY_ROOT] * 63).subtrees()) == 63
