"""One of equally good nodes is the best for a pod with devices, and an unknown one never is."""

from collections.abc import Sequence

import numpy as np
import pytest

from joulie_extender.decide.scoring import Scores, with_one_best
from joulie_extender.terms.freshness import ScoreBasis
from joulie_extender.terms.term import NO_CLUSTER_TERMS

ENERGY, NEUTRAL = int(ScoreBasis.ENERGY), int(ScoreBasis.NEUTRAL)


def scores(*points: float, basis: Sequence[int] = ()) -> Scores:
    table = np.array([points])
    known = np.array(basis or [ENERGY] * len(points))
    return Scores(table[0].astype(np.int64), table, known, NO_CLUSTER_TERMS, {})


def answers(found: Scores, uid: str = "p", rows: Sequence[int] = ()) -> list[int]:
    at = np.array(rows or range(1, 1 + len(found.answer)))
    whole: list[int] = with_one_best(found, at, uid).answer.tolist()
    return whole


def test_one_of_equal_nodes_keeps_its_answer_and_the_others_get_one_less() -> None:
    found = answers(scores(70.0, 70.0, 70.0, 12.0))

    assert sorted(found) == [12, 69, 69, 70]


def test_different_pods_choose_different_ones_and_each_always_the_same() -> None:
    equal = scores(*[70.0] * 10)
    chosen = [int(np.argmax(answers(equal, f"p{at}"))) for at in range(100)]

    assert len(set(chosen)) == 10
    assert chosen == [int(np.argmax(answers(equal, f"p{at}"))) for at in range(100)]


def test_the_order_of_the_candidates_makes_no_difference() -> None:
    rows = [4, 9, 2, 7]
    chosen = {
        order[int(np.argmax(answers(scores(*[70.0] * 4), "p", order)))]
        for order in (rows, rows[::-1], sorted(rows))
    }

    assert len(chosen) == 1


def test_a_better_node_wins_though_its_answer_is_the_same_number() -> None:
    for at in range(20):
        assert answers(scores(70.2, 70.9, 70.5), f"p{at}") == [69, 70, 69]


def test_an_unknown_node_is_never_the_one() -> None:
    for at in range(20):
        found = answers(scores(70.0, 70.0, basis=[NEUTRAL, ENERGY]), f"p{at}")
        assert found == [69, 70]


@pytest.mark.parametrize("points", [[0.0, 0.0], [0.4, 0.2]])
def test_one_of_nodes_without_points_gets_one(points: list[float]) -> None:
    assert sorted(answers(scores(*points))) == [0, 1]


def test_without_candidates_there_is_none() -> None:
    assert answers(scores()) == []
