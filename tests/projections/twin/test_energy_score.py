"""The laws of the energy score."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from joulie_projections.twin.energy_score import (
    RESERVE_W,
    SHARED_ACTIVATION,
    EnergyNodes,
    EnergyScores,
    energy_scores,
)


def nodes(count: int = 1, **changes: Any) -> EnergyNodes:
    """Equal nodes with 96 cores, half of them free, and no cards."""
    figures = {
        "free_cores": 48.0,
        "free_cards": 0.0,
        "cores": 96.0,
        "cards": 0.0,
        "idle_w": 350.0,
        "w_per_core": 5.0,
        "w_per_card": 455.0,
        "is_empty": False,
    }
    columns = {name: np.full(count, value) for name, value in figures.items()}
    given_columns = {name: np.asarray(value) for name, value in changes.items()}
    return EnergyNodes(**{**columns, **given_columns})


def best(scores: EnergyScores) -> int:
    return int(scores.score.argmax())


def test_a_pod_goes_to_the_fullest_of_equal_nodes() -> None:
    free = nodes(3, free_cores=[90.0, 8.0, 40.0])

    assert best(energy_scores(free, 4, 0)) == 1


def test_an_empty_node_costs_its_idle_watts() -> None:
    found = energy_scores(nodes(2, free_cores=[96.0, 95.0], is_empty=[True, False]), 4, 0)

    assert found.activation_w[0] == 350.0
    assert best(found) == 1


def test_waking_a_node_costs_more_than_using_an_empty_one() -> None:
    both = nodes(2, free_cores=[96.0, 96.0], is_empty=[True, True], is_asleep=[True, False])

    assert best(energy_scores(both, 4, 0)) == 1


def test_an_empty_node_in_an_efficient_hall_is_cheaper() -> None:
    both = nodes(2, free_cores=[96.0, 96.0], is_empty=[True, True], pue=[1.6, 1.1])
    found = energy_scores(both, 4, 0)

    assert found.marginal_w.tolist() == [4 * 5 * 1.6, 4 * 5 * 1.1]
    assert best(found) == 1


def test_cards_go_where_cores_stay_beside_the_others() -> None:
    """Both have 4 of 8 cards free; the first has no cores left for them."""
    both = nodes(
        2, free_cores=[34.0, 64.0], cores=[128.0] * 2, cards=[8.0] * 2, free_cards=[4.0, 4]
    )
    found = energy_scores(both, 32, 2)

    assert found.fragmentation_w[0] > found.fragmentation_w[1]


def test_a_pod_without_cards_takes_cores_beside_used_cards_before_an_empty_node() -> None:
    """The last has free cards."""
    each = nodes(
        4,
        cards=[0.0, 8.0, 0.0, 8.0],
        idle_w=[350.0, 1400.0, 350.0, 1400.0],
        is_empty=[False, False, True, False],
        free_cores=[48.0, 48.0, 96.0, 48.0],
        free_cards=[0.0, 0.0, 0.0, 1.0],
    )

    assert energy_scores(each, 4, 0).score.argsort().tolist() == [3, 2, 1, 0]


def test_cards_go_to_the_begun_node_with_the_fewest_free_ones() -> None:
    both = nodes(
        2, free_cores=[48.0, 96.0], cores=[128.0] * 2, cards=[8.0] * 2, free_cards=[3.0, 6.0]
    )

    assert best(energy_scores(both, 16, 1)) == 0


def test_where_the_loss_of_gpus_is_known_a_pod_with_cards_pays_a_tenth_of_what_it_wakes() -> None:
    both = nodes(
        2,
        cards=[8.0] * 2,
        free_cards=[8.0, 3.0],
        is_empty=[True, False],
        free_cores=[128.0, 100.0],
        cores=[128.0] * 2,
    )
    known = both._replace(lost_gpus_w=np.array([20.0, 30.0]))
    before, found = energy_scores(both, 16, 1), energy_scores(known, 16, 1)

    assert found.activation_w.tolist() == (before.activation_w * SHARED_ACTIVATION).tolist()
    assert (before.fragmentation_w > 0).any()
    assert found.fragmentation_w.tolist() == [0.0, 0.0]
    assert found.lost_gpus_w is not None
    assert found.lost_gpus_w.tolist() == [20.0, 30.0]


def test_the_loss_of_gpus_counts_as_watts() -> None:
    both = nodes(2, cards=[8.0] * 2, free_cards=[3.0, 3.0])

    assert best(energy_scores(both._replace(lost_gpus_w=np.array([5.0, 0.0])), 16, 1)) == 1
    assert best(energy_scores(both._replace(lost_gpus_w=np.array([0.0, 5.0])), 16, 1)) == 0


def test_cards_are_reserved_only_while_a_candidate_has_none() -> None:
    """The first and the second have free cards; the third has none."""
    lost = np.array([40.0, 10.0, 0.0])
    three = nodes(3, cards=[8.0, 8.0, 0.0], free_cards=[2.0, 6.0, 0.0])._replace(lost_gpus_w=lost)
    two = nodes(2, cards=[8.0, 8.0], free_cards=[2.0, 6.0])._replace(lost_gpus_w=lost[:2])
    mixed, alike = energy_scores(three, 4, 0), energy_scores(two, 4, 0)

    assert best(mixed) == 2
    assert (mixed.reserve_w[:2] > RESERVE_W).all()
    assert alike.reserve_w.tolist() == [0.0, 0.0]


def test_an_empty_node_without_cards_comes_before_free_cards() -> None:
    both = nodes(2, is_empty=[True, False], cards=[0.0, 8.0], free_cards=[0.0, 1.0])

    assert best(energy_scores(both, 4, 0)) == 0
    assert energy_scores(both, 4, 0, keeps_cards=False).reserve_w.tolist() == [0.0, 0.0]


def test_unknown_rows_do_not_change_the_others() -> None:
    free = nodes(2, free_cores=[40.0, 0.0], idle_w=[350.0, 0.0], w_per_core=[5.0, 0.0])
    known = np.array([True, False])

    assert energy_scores(free, 4, 0, known=known).score[0] == 100.0
    assert energy_scores(free, 4, 0, known=~known & False).score.tolist() == [100.0, 100.0]


amounts = st.floats(0, 200)
columns = st.tuples(amounts, amounts, st.floats(0, 1000), st.floats(0, 20), st.floats(0, 1000))


@given(columns, st.floats(0.1, 8), st.booleans(), st.floats(0.1, 64))
def test_free_cards_never_raise_the_score_of_a_pod_without_cards(
    row: tuple[float, float, float, float, float], cards: float, is_empty: bool, cores: float
) -> None:
    free, used, idle, per_core, per_card = row
    both = nodes(
        2,
        free_cores=[free] * 2,
        cores=[free + used] * 2,
        idle_w=[idle] * 2,
        w_per_core=[per_core] * 2,
        w_per_card=[per_card] * 2,
        cards=[8.0, 8.0],
        free_cards=[cards, 0.0],
        is_empty=[is_empty] * 2,
    )

    found = energy_scores(both, cores, 0).score

    assert found[0] <= found[1]


@given(columns, st.floats(0, 8), st.booleans())
def test_scores_are_between_0_and_100(
    row: tuple[float, float, float, float, float], cards: float, is_empty: bool
) -> None:
    free, used, idle, per_core, per_card = row
    some = nodes(
        2,
        free_cores=[free, 48.0],
        cores=[free + used, 96.0],
        idle_w=[idle, 350.0],
        w_per_core=[per_core, 5.0],
        w_per_card=[per_card, 455.0],
        is_empty=[is_empty, False],
    )

    found = energy_scores(some, 4, cards).score

    assert 0 <= found.min() <= found.max() == 100


MEASURED = {"cards": 8.0, "process_w": 50.0, "idle_card_w": 73.0, "free_cores": 96.0}


def test_the_first_process_on_each_idle_card_costs_what_was_measured() -> None:
    node = nodes(3, free_cards=[8.0, 7.5, 7.4], **MEASURED)

    shared, two = energy_scores(node, 1, 0.5), energy_scores(node, 1, 2)

    assert shared.process_w is not None
    assert two.process_w is not None
    assert shared.process_w.tolist() == [50.0, 0.0, 50.0]
    assert two.process_w.tolist() == [100.0] * 3


def test_the_first_card_of_a_node_costs_a_share_of_the_others_that_could_sleep() -> None:
    node = nodes(3, free_cards=[8.0, 7.0, 8.0], is_empty=[False, False, True], **MEASURED)

    found = energy_scores(node, 1, 1)

    assert found.first_card_w is not None
    assert found.first_card_w.tolist() == [0.25 * 7 * 73, 0.0, 0.0]
    assert best(found) == 1


def test_cards_that_nobody_measured_have_neither_term() -> None:
    unmeasured = nodes(2, free_cards=[8.0, 7.0], cards=8.0)

    assert energy_scores(unmeasured, 1, 1).process_w is None


def test_a_pod_without_cards_pays_for_no_card() -> None:
    assert energy_scores(nodes(1, free_cards=8.0, **MEASURED), 1, 0).process_w is None
