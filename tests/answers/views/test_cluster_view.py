"""Snapshots as API values, descriptions of decisions, and warnings, without a console."""

from typing import Any

import pytest
from msgspec.structs import replace

from joulie_answers.views.cluster_view import (
    ClusterSnapshot,
    Overview,
    map_changes,
    map_state,
    state_of,
)
from joulie_answers.views.decision_text import loss_of
from joulie_bus.events import NodeGone, Terms
from joulie_bus.events.decisions import LaterTerms
from joulie_bus.testing import eco, hardware, node_seen, noon, power, records, waking
from joulie_extender.catalogue.terms import points_of
from joulie_extender.catalogue.weights import Weights
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns

STALENESS_S = 300.0


def overview(*facts: Any, at_s: float = 60.0) -> Overview:
    cluster_state = ClusterState()
    draft = Draft(cluster_state)
    fold(draft, records(*facts, step_s=0), 0)
    draft.commit()
    twin_columns = TwinColumns.of(cluster_state.nodes, cluster_state.planned_at)
    return Overview(
        ClusterSnapshot(len(facts), noon(at_s), cluster_state, twin_columns), STALENESS_S
    )


@pytest.mark.parametrize(
    ("age_s", "watts", "basis"),
    [(0, 150.0, "measured"), (300, 150.0, "measured"), (301, None, "predicted")],
)
def test_a_reading_counts_until_it_is_stale(age_s: float, watts: float | None, basis: str) -> None:
    seen = overview(hardware("n1", watts=600), power("n1", 150), at_s=age_s).node("n1")

    assert (seen.measured_w, seen.headroom_basis) == (watts, basis)


def test_a_node_without_hardware_and_readings_has_no_headroom() -> None:
    seen = overview(eco("n1")).node("n1")

    assert (seen.headroom, seen.headroom_basis) == (None, "unknown")


def test_only_changed_rows_are_in_a_delta() -> None:
    before = overview(hardware("n1", watts=600), hardware("n2", watts=600), power("n1", 150))
    after = overview(
        hardware("n1", watts=600), hardware("n2", watts=600), power("n1", 150.2), eco("n2")
    )

    changes = map_changes(map_state(before), map_state(after))
    assert [row[:2] for row in changes["rows"]] == [[1, 2]]
    assert (changes["gone"], changes["added"]) == ([], [])


def test_a_delta_names_the_nodes_that_came_and_went() -> None:
    first = (node_seen("n1", rack="r1"), node_seen("n2"))
    before, after = overview(*first), overview(*first, NodeGone(node="n1"), node_seen("n3"))
    changes = map_changes(map_state(before), map_state(after))

    assert changes["gone"] == [0]
    assert changes["added"] == [(0, "n3", "")]
    assert [row[0] for row in changes["rows"]] == [0]  # though its values are those of n1

    changes = map_changes(
        map_state(after), map_state(overview(node_seen("x"), node_seen("n2"), NodeGone(node="x")))
    )
    assert (changes["gone"], changes["added"], changes["rows"]) == ([0], [], [])


def test_a_waking_node_is_shown_as_waking_in_every_class() -> None:
    seen = overview(replace(node_seen("n1"), ready=False), eco("n1"), waking("n1"))

    machine = state_of(seen.snapshot.cluster_state.nodes["n1"], "")

    assert (machine.now, machine.waits_for) == ("waking", "the node is not ready yet")


def terms(score: float, **values: Any) -> Terms:
    blank: dict[str, Any] = dict.fromkeys(
        ("headroom", "cooling", "trend", "bonus", "pressure", "draining", "marginal_w"), 0.0
    )
    return Terms(node=f"n{score:g}", score=score, source="measured", **{**blank, **values})


def test_a_loss_names_the_term_that_cost_the_most() -> None:
    winner = terms(60, headroom=70, cooling=20)
    loser = terms(46, headroom=60, cooling=66)

    found = loss_of(winner, loser, Weights())

    assert (found.term, found.behind) == ("headroom", 14)
    assert found.points == pytest.approx(7.0)


def test_equal_candidates_have_no_loss() -> None:
    found = loss_of(terms(50), terms(50), Weights())

    assert (found.term, found.points, found.behind) == ("", 0.0, 0.0)


def test_points_add_up_to_the_score() -> None:
    found = points_of(
        terms(0, headroom=41.67, cooling=20, trend=2, bonus=10, pressure=3, draining=20), Weights()
    )

    assert sum(found.values()) == pytest.approx(0.7 * 41.67 + 0.15 * 80 + 2 + 10 - 3 - 20)


def test_kept_cards_cost_points() -> None:
    kept = terms(20, headroom=80, cooling=20, cards_kept=48.0)

    found = points_of(kept, Weights())

    assert sum(found.values()) == pytest.approx(kept.score)
    assert loss_of(terms(56, headroom=80, cooling=20), kept, Weights()).term == "cards_kept"


def test_a_loss_by_watts_names_the_watts_that_cost_the_most() -> None:
    winner = replace(terms(100, marginal_w=40, later=LaterTerms(activation_w=20)), source="energy")
    loser = replace(terms(45, marginal_w=30, later=LaterTerms(activation_w=340)), source="energy")

    found = loss_of(winner, loser, Weights(scoring="energy"))

    assert (found.term, found.points, found.behind) == ("activation", 55.0, 55.0)
