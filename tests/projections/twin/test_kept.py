"""Collections of which each position has its own are what a copy would be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulie_projections.twin.kept import KeptDict, KeptList

KEYS = st.sampled_from([f"k{at}" for at in range(9)])


@given(
    first=st.lists(st.integers(), max_size=300),
    changes=st.lists(st.dictionaries(st.integers(0, 310), st.integers()), max_size=5),
)
def test_a_list_with_changes_equals_a_changed_copy(
    first: list[int], changes: list[dict[int, int]]
) -> None:
    kept, plain = KeptList(first), list(first)
    positions = [(kept, list(plain))]
    for change in changes:
        for at, value in sorted(change.items()):
            plain[at : at + 1] = [value]
        within = {at: value for at, value in change.items() if at < len(plain)}
        added = dict(enumerate(plain[len(kept) :], len(kept)))
        kept = kept.following(within | added)
        positions.append((kept, list(plain)))

    for found, expected in positions:
        assert list(found) == expected
        assert [found[at] for at in range(len(found))] == expected
        assert found[1:3] == expected[1:3]


def test_a_place_beyond_a_list_is_refused() -> None:
    kept = KeptList([1, 2])

    assert (kept[-1], kept[-2]) == (2, 1)
    for at in (2, -3):
        with pytest.raises(IndexError):
            kept[at]


@given(
    first=st.dictionaries(KEYS, st.integers()),
    changes=st.lists(st.dictionaries(KEYS, st.none() | st.integers()), max_size=5),
    many=st.booleans(),
)
def test_a_dictionary_with_changes_equals_a_changed_copy(
    first: dict[str, int], changes: list[dict[str, int | None]], many: bool
) -> None:
    kept, plain = KeptDict(first), dict(first)
    positions = [(kept, dict(plain))]
    for number, change in enumerate(changes):
        more = {f"{number}/{at}": at for at in range(150 if many else 0)}
        for key, value in (change | more).items():
            if value is None:
                plain.pop(key, None)
            else:
                plain[key] = value
        kept = kept.following(change | more)
        positions.append((kept, dict(plain)))

    for found, expected in positions:
        assert (dict(found), len(found)) == (expected, len(expected))
        assert all((key in found) == (key in expected) for key in (*first, *expected))
        assert [found.get(key) for key in sorted(expected)] == [
            expected[k] for k in sorted(expected)
        ]
