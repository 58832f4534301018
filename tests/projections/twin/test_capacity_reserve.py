"""The text of capacity_reserve, and the rules compared with a loop over nodes."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulie_projections.twin.capacity_reserve import (
    NO_RESERVE,
    Capacity,
    CapacityReserve,
    Request,
    asks_too_much,
    can_refuse,
    capacity_reserve,
    takes_cores_of_cards,
    takes_reserve,
    totals_of,
    written,
)

shares = st.sampled_from([0.0, 0.005, 0.07, 0.25, 0.5])
cores = st.sampled_from([0.0, 4.0, 8.0])
reserves = st.builds(CapacityReserve, shares, cores, cores, shares)
requests = st.builds(Request, st.integers(1, 96), st.integers(0, 8), st.booleans())
nodes = st.tuples(st.integers(0, 96), st.integers(0, 8), st.just(96), st.sampled_from([0, 8])).map(
    lambda each: (each[0], min(each[1], each[3]), each[2], each[3])
)


def test_a_reserve_is_written_as_it_is_read() -> None:
    text = "cards=0.07,cores-per-card=4.0,cores-beside-card=8.0,cores=0.005"

    assert capacity_reserve(text) == CapacityReserve(0.07, 4.0, 8.0, 0.005)
    assert written(capacity_reserve(text)) == text
    assert capacity_reserve("") == NO_RESERVE == CapacityReserve()


@given(reserves)
def test_any_reserve_survives_its_text(reserve: CapacityReserve) -> None:
    assert capacity_reserve(written(reserve)) == reserve


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cards", "'cards' needs a number from 0 to 0.5"),
        ("cards=7", "'cards=7' needs a number from 0 to 0.5"),
        ("cards=nan", "'cards=nan' needs a number from 0 to 0.5"),
        ("cores-beside-card=65", "'cores-beside-card=65' needs a number from 0 to 64"),
        ("gpus=0.1", "'gpus=0.1' is not one of cards, cores-per-card, cores-beside-card, cores"),
        ("cards=0.1,cards=0.2", "'cards=0.2' is not one of cards, cores-per-card"),
    ],
)
def test_a_mistake_in_the_text_is_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        capacity_reserve(text)


@given(reserves, requests, st.lists(nodes, min_size=1, max_size=6))
def test_the_rules_are_those_of_a_loop_over_nodes(
    reserve: CapacityReserve, request_: Request, each: list[tuple[int, int, int, int]]
) -> None:
    found = Capacity(*np.array(each).T)
    totals = totals_of(found)
    everywhere = takes_reserve(reserve, totals, request_)
    here = takes_cores_of_cards(reserve, found.free_cores, found.free_cards, request_)

    free_cards, cards = sum(one[1] for one in each), sum(one[3] for one in each)
    plain = [one for one in each if not one[3]]
    left_cores = sum(one[0] for one in plain) - request_.cores
    if request_.cards:
        kept = reserve.cards * cards
        expected = request_.performance and free_cards - request_.cards < kept
    else:
        kept = reserve.cores * sum(one[2] for one in plain)
        expected = request_.cores > 8 and left_cores < kept
    assert everywhere == (expected and kept > 0)
    beside = [
        not request_.cards
        and one[1] > 0
        and one[0] - request_.cores < reserve.cores_beside_card * one[1]
        and reserve.cores_beside_card > 0
        for one in each
    ]
    assert here.tolist() == beside
    too_much = asks_too_much(reserve, request_)
    limit = reserve.cores_per_card * request_.cards
    assert too_much == (request_.performance and 0 < limit < request_.cores)
    assert can_refuse(reserve, request_) or not (everywhere or here.any() or too_much)
