"""Snapshots as API values, descriptions of decisions, and warnings, without a console."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from bus_kit import ask, asleep, eco, hardware, node_seen, noon, power, records, waking
from joulie_answers.views.cluster_view import (
    POWER_STATES,
    UNKNOWN,
    ClusterSnapshot,
    Overview,
    map_changes,
    map_state,
    state_of,
)
from joulie_answers.views.decision_text import loss_of
from joulie_bus.events import NodeGone, PodBound, Terms
from joulie_bus.events.decisions import LaterTerms
from joulie_extender.catalogue.terms import points_of
from joulie_extender.catalogue.weights import Weights
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns

STALENESS_S = 300.0


def overview(*facts: Any, at_s: float = 60.0, step_s: float = 0.0) -> Overview:
    cluster_state = ClusterState()
    draft = Draft(cluster_state)
    fold(draft, records(*facts, step_s=step_s), 0)
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


def test_the_age_of_the_oldest_reading_that_is_not_fresh_is_known_and_none_of_fresh_ones() -> None:
    facts = (hardware("n1"), power("n1", 150), hardware("n2"))

    assert overview(*facts, at_s=300).oldest_stale_s() is None
    assert overview(*facts, at_s=400).oldest_stale_s() == pytest.approx(400.0)


def test_the_map_has_the_larger_part_of_cores_and_gpus_that_pods_request() -> None:
    facts = (node_seen("n1", cores=8, gpus=4), node_seen("n2", cores=8), hardware("n3"))
    placed = PodBound(pod=ask("a", cores=2, gpus=3), node="n1")
    columns = map_state(overview(*facts, placed)).columns

    assert columns.used[1:4].tolist() == [75, 0, UNKNOWN]


def test_a_node_without_hardware_and_readings_has_no_headroom() -> None:
    seen = overview(eco("n1")).node("n1")

    assert (seen.headroom, seen.headroom_basis) == (None, "unknown")


def test_of_a_node_without_hardware_and_readings_nothing_is_a_number() -> None:
    seen = overview(eco("n1"))

    found = seen.node("n1")
    of_hardware = (found.cores, found.gpus, found.capped_w, found.tdp_w, found.cooling)
    assert {*of_hardware, found.measured_w, found.trend_w_per_min} == {None}
    assert seen.totals() == (None, None, None, None, 0, 1)
    columns = map_state(seen).columns
    assert [column.tolist()[1] for column in columns[1:5]] == [UNKNOWN] * 4


def test_a_trend_needs_fresh_readings_of_some_seconds() -> None:
    readings = (power("n1", 100), power("n1", 160))
    facts = (hardware("n1", watts=600), *readings)

    assert overview(*facts, step_s=6).node("n1").trend_w_per_min == pytest.approx(600)
    assert overview(*facts, step_s=1).node("n1").trend_w_per_min is None
    assert overview(*facts, step_s=6, at_s=400).node("n1").trend_w_per_min is None
    assert overview(*facts[:2], step_s=6).node("n1").trend_w_per_min is None


@pytest.mark.parametrize(
    ("ready", "schedulable", "state"),
    [(True, True, "awake"), (False, True, "not ready"), (True, False, "cordoned")],
)
def test_a_node_that_is_lost_or_drained_is_not_awake(
    ready: bool, schedulable: bool, state: str
) -> None:
    seen = replace(node_seen("n1"), ready=ready, schedulable=schedulable)
    found = overview(seen, node_seen("n2"))

    assert (found.node("n1").state, found.node("n1").power_state) == (state, "awake")
    assert found.states() == Counter([state, "awake"])
    assert POWER_STATES[map_state(found).columns.power[1]] == state


def test_what_sleeping_nodes_may_draw_is_not_counted() -> None:
    facts = (hardware("n1", watts=600), hardware("n2", watts=600))

    assert overview(*facts).totals().capped_w == 1200
    assert overview(*facts, asleep("n2")).totals().capped_w == 600
    assert overview(*facts, waking("n2")).totals().capped_w == 1200


def test_units_of_shared_cards_are_counted_by_their_name() -> None:
    """Eight cards in four units each, beside four whole ones."""
    shared = replace(node_seen("n1", cores=100, gpus=8), gpu_units=32)
    seen = overview(shared, node_seen("n2", cores=100, gpus=4))
    n1, n2 = seen.node("n1"), seen.node("n2")

    assert seen.gpu_units() == 32
    assert (n1.gpus, n1.gpu_unit, n2.gpus, n2.gpu_unit) == (32, 0.25, 4, 1.0)


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
