"""Which GPUs of a node a pod gets."""

from hypothesis import given, settings

from gpu_kit import (
    CARDS,
    MB,
    PODS,
    a_card,
    a_claim,
    number,
    reference_fit,
    twin_columns_of,
    wanting,
)
from joulie_bus.events import PodAsk
from joulie_extender.gpu.card_choice import choose_cards
from joulie_extender.gpu.fit import GpuWeights, gpu_request_of
from joulie_projections.state.cards import CardState
from joulie_projections.twin.card_columns import Cards


def picked(pod: PodAsk, **cards: CardState) -> list[str]:
    found = choose_cards(pod, "n0", twin_columns_of(cards), GpuWeights())
    return [taken.card for taken in found.cards] if found else []


@given(cards=CARDS, pod=PODS)
@settings(deadline=None, max_examples=150)
def test_cards_are_found_where_the_filter_lets_the_pod_pass(
    cards: dict[str, CardState], pod: PodAsk
) -> None:
    twin_columns = twin_columns_of(cards)
    found = choose_cards(pod, "n0", twin_columns, GpuWeights())

    if gpu_request_of(pod) is not None:
        assert (found is not None) == reference_fit(pod, "n0", cards).fits
        taken = [cards[each.card] for each in found.cards] if found else []
        assert len({card.model for card in taken}) <= 1
        assert found is None or len({each.card for each in found.cards}) == number(pod)
        shuffled = twin_columns.with_cards(
            Cards.of(dict(reversed(cards.items())), twin_columns.rows)
        )
        assert choose_cards(pod, "n0", shuffled, GpuWeights()) == found


def test_a_share_goes_where_the_least_is_left_over() -> None:
    cards = {"a": a_card(), "b": a_card(used_mb=8000), "c": a_card(used_mb=20_000)}

    assert picked(wanting(cards=0, vram_mb=20_000), **cards) == ["c"]
    assert picked(wanting(cards=0, vram_mb=30_000), **cards) == ["b"]


def test_a_small_card_is_given_before_a_big_one() -> None:
    cards = {"a": a_card(mb=81_920), "b": a_card(mb=MB)}

    assert picked(wanting(vram_mb=30_000), **cards) == ["b"]
    assert picked(wanting(vram_mb=60_000), **cards) == ["a"]


def test_an_unused_group_stays_whole_while_it_can() -> None:
    whole = {"a": a_card(group="0"), "b": a_card(group="0")}
    touched = {"c": a_card(group="1"), "d": a_card(group="1", claims={"x": a_claim()})}

    assert picked(wanting(model="A100"), **whole, **touched) == ["c"]
    assert picked(wanting(cards=2, model="A100"), **whole, **touched) == ["a", "b"]


def test_two_cards_are_linked_where_possible_without_a_request_for_it() -> None:
    cards = {"a": a_card(), "b": a_card(), "c": a_card(group="0"), "d": a_card(group="0")}

    assert picked(wanting(cards=2, model="A100"), **cards) == ["c", "d"]


def test_linked_cards_come_from_the_group_that_has_the_fewest_to_spare() -> None:
    big = {name: a_card(group="0") for name in "abcd"}
    small = {name: a_card(group="1") for name in "ef"}

    assert picked(wanting(cards=2, topology="nvlink"), **big, **small) == ["e", "f"]


def test_a_pod_keeps_the_card_that_it_has_claimed() -> None:
    cards = {"a": a_card(), "b": a_card(claims={"me": a_claim()})}

    assert picked(wanting("me", model="A100"), **cards) == ["b"]


def test_a_whole_card_is_claimed_whole_and_a_share_as_far_as_it_goes() -> None:
    cards = twin_columns_of({"a": a_card()})
    whole = choose_cards(wanting(vram_mb=30_000), "n0", cards, GpuWeights())
    share = choose_cards(wanting(cards=0, share_milli=250), "n0", cards, GpuWeights())

    assert [found.cards[0].mb for found in (whole, share) if found] == [MB, MB // 4]


def test_a_choice_says_why() -> None:
    found = choose_cards(
        wanting(cards=2, topology="nvlink"),
        "n0",
        twin_columns_of({n: a_card(group="0") for n in "abc"}),
        GpuWeights(),
    )

    assert found is not None
    assert found.because == (
        "2 of 3 fitting cards, linked, out of an untouched group, 81920 MB left over"
    )


def test_the_reason_for_a_single_card_names_no_links() -> None:
    found = choose_cards(
        wanting(vram_mb=1), "n0", twin_columns_of({"a": a_card(group="0")}), GpuWeights()
    )

    assert found is not None
    assert "linked" not in found.because


def test_a_card_whose_group_has_no_other_fitting_card_breaks_up_no_links() -> None:
    """Then the name of the model decides, as between cards without links."""
    linked, alone = a_card(group="0", model="A100"), a_card(model="H100")

    assert picked(wanting(vram_mb=1), a=alone, b=linked) == ["b"]


def test_a_card_without_links_is_given_before_the_last_free_one_of_a_group() -> None:
    taken = a_card(group="0", claims={"x": a_claim()})
    cards = {"a": a_card(group="0"), "b": a_card(), "c": taken}

    assert picked(wanting(vram_mb=1), **cards) == ["b"]


def test_of_groups_in_use_the_one_with_the_fewest_free_cards_is_taken() -> None:
    claims = {"x": a_claim()}
    three = {name: a_card(group="0") for name in "abc"} | {"d": a_card(group="0", claims=claims)}
    two = {name: a_card(group="1") for name in "ef"} | {"g": a_card(group="1", claims=claims)}

    assert picked(wanting(cards=2, model="A100"), **three, **two) == ["e", "f"]


def test_what_a_share_leaves_over_is_the_rest_of_its_card() -> None:
    cards = twin_columns_of({"a": a_card()})
    found = choose_cards(wanting(cards=0, share_milli=250), "n0", cards, GpuWeights())

    assert found is not None
    assert found.because == "1 of 1 fitting cards, 30720 MB left over"


def test_an_unknown_node_has_no_cards_to_choose() -> None:
    assert (
        choose_cards(wanting(vram_mb=1), "n7", twin_columns_of({"a": a_card()}), GpuWeights())
        is None
    )
