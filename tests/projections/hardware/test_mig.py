"""The number of cards behind a mix of MIG slices."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_projections.hardware.mig import Profile, cards, fraction, profile_of

A100 = ["1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]
SIZES = {"1g.5gb": (1, 1), "1g.10gb": (1, 2), "2g.10gb": (2, 2), "3g.20gb": (3, 4)} | {
    "4g.20gb": (4, 4),
    "7g.40gb": (7, 8),
}


def profile(text: str) -> Profile:
    found = profile_of(text)
    assert found is not None
    return found


def cut(names: Sequence[str]) -> list[str]:
    """The slices of one card: each name that still fits, in this order."""
    compute, memory, fitting = 7, 8, []
    for name in names:
        slices, parts = SIZES[name]
        if slices <= compute and parts <= memory:
            compute, memory = compute - slices, memory - parts
            fitting.append(name)
    return fitting


CUT = st.lists(st.sampled_from(A100), min_size=1, max_size=7).map(cut)


@given(st.lists(CUT, min_size=1, max_size=4))
@settings(deadline=None, max_examples=200)
def test_the_result_is_at_most_the_number_of_cards_that_were_cut(nodes: list[list[str]]) -> None:
    mix: dict[Profile, int] = {}
    for name in (name for cut in nodes for name in cut):
        mix[profile(name)] = mix.get(profile(name), 0) + 1

    found = cards(mix, 40)

    slices = sum(each.instance * count for each, count in mix.items())
    assert -(-slices // 7) <= found <= len(nodes)


def test_the_largest_profile_is_a_whole_card() -> None:
    for text in ("7g.40gb", "7g.80gb", "7g.141gb", "7g.180gb", "4g.24gb", "4g.96gb"):
        assert fraction(profile(text)) == 1
        assert cards({profile(text): 3}) == 3


def test_an_unknown_profile_is_counted_in_sevenths() -> None:
    assert cards({profile("3g.999gb"): 5}) == 3
    assert cards({}) == 0


def test_invalid_profile_names_give_none() -> None:
    for text in ("", "g.5gb", "1g", "0g.5gb", "10g.5gb", "1g.5gbx", "gpu"):
        assert profile_of(text) is None


def test_compute_slices_are_capped_at_those_of_the_instance() -> None:
    assert profile_of("4c.3g.20gb") == profile_of("3c.3g.20gb") == Profile(3, 3, 20)
