"""Node terms of columns that were updated equal those of columns built from scratch."""

import gc
import weakref
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_scoring
from bus_kit import NOON, SECOND, ask, hardware
from joulie_extender.catalogue.terms import NODE_COLUMNS
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.node_terms import node_terms_of
from joulie_extender.terms.freshness import ScoreBasis
from joulie_extender.terms.term import NodeColumn, Nodes, NodeTerms
from joulie_projections.state.state import NodeState, Sample
from joulie_projections.twin.arrays import Floats
from joulie_projections.twin.columns import TwinColumns
from state_sequence import NODES, StateSequence, Step, firsts, steps

KINDS = [ask(cores=2), ask(cores=8, gpus=2, performance=True)]


def same(found: NodeTerms, expected: NodeTerms) -> bool:
    """Compares every bit of every node's row; rows of removed nodes are ignored."""
    there = np.arange(len(expected.basis))
    columns = all(
        getattr(found, name)[there].tobytes() == getattr(expected, name).tobytes()
        for name in ("basis", "fresh")
    ) and all(
        found.of(name, there).tobytes() == expected.of(name, there).tobytes()
        for name in NODE_COLUMNS
    )
    is_as_dear = all(
        found.marginal_power.of(pod, there).tobytes()
        == expected.marginal_power.of(pod, there).tobytes()
        for pod in KINDS * 2
    )
    return columns and is_as_dear and found.cluster == expected.cluster


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(firsts, st.lists(steps, min_size=3, max_size=6), reference_scoring.any_weights)
@pytest.mark.long
def test_the_terms_of_updated_columns_are_those_of_new_columns(
    first: list[NodeState], course: list[Step], weights: Weights
) -> None:
    at = StateSequence.of(first)
    seen = at.twin_columns
    node_terms_of(seen, at.now, 0, weights)
    for step in course:
        at = at.after(step)
        if step.is_looked_at:
            found = node_terms_of(at.twin_columns, at.now, step.age_ms, weights, earlier=seen)
            seen = at.twin_columns
            afresh = TwinColumns.of(at.nodes, at.twin_columns.planned_at, step.halls)
            assert same(found, node_terms_of(afresh, at.now, step.age_ms, weights))


def test_the_watts_of_a_pod_are_kept_for_the_next_snapshot_with_the_same_hardware() -> None:
    weights = Weights()
    whole = {f"n{number}": NodeState(ordinal=number, at=NOON) for number in range(NODES)}
    twin_columns = TwinColumns.of(whole, 0)
    first = node_terms_of(twin_columns, NOON, 0, weights)
    read = twin_columns.with_readings(
        [NodeState(ordinal=3, at=NOON, samples=(Sample(NOON, 250_000),))]
    )
    grown = read.updated([("n3", NodeState(ordinal=3, at=NOON, cpu_milli=64_000))], 0)

    second = node_terms_of(read, NOON, 0, weights, earlier=twin_columns)
    third = node_terms_of(grown, NOON, 0, weights, earlier=read)

    assert second.marginal_power is first.marginal_power
    assert third.marginal_power is not second.marginal_power


def read_at(*sampled: int) -> TwinColumns:
    nodes = {
        f"n{at}": NodeState(ordinal=at, at=NOON, samples=(Sample(when, 250_000),))
        for at, when in enumerate(sampled)
    }
    return TwinColumns.of(nodes, 0)


def test_terms_are_kept_until_a_twin_or_a_reading_becomes_stale() -> None:
    columns, weights = read_at(NOON - 10 * SECOND, NOON), Weights(staleness_s=60.0)
    first = node_terms_of(columns, NOON, 0, weights)

    assert node_terms_of(columns, NOON + 50 * SECOND, 60_000, weights).basis is first.basis
    assert node_terms_of(columns, NOON + 50 * SECOND + 1, 0, weights).basis is not first.basis
    assert node_terms_of(columns, NOON - 1, 0, weights).basis is not first.basis


def test_terms_of_a_view_that_has_become_old_are_computed_anew() -> None:
    columns, weights = read_at(NOON), Weights(staleness_s=60.0)
    fresh = node_terms_of(columns, NOON, 60_000, weights)
    old = node_terms_of(columns, NOON, 60_001, weights)

    assert fresh.fresh[1:].all()
    assert not old.fresh.any()
    assert node_terms_of(columns, NOON, 10, weights).fresh[1:].all()


def test_terms_without_a_fresh_reading_are_kept_for_ever() -> None:
    columns, weights = read_at(NOON - 999 * SECOND), Weights(staleness_s=60.0)
    old = node_terms_of(columns, NOON + 900 * SECOND, 0, weights)

    assert node_terms_of(columns, NOON + 10**9 * SECOND, 0, weights).basis is old.basis


def test_a_column_is_computed_once_for_a_snapshot_and_when_it_is_needed() -> None:
    columns, weights, rows = read_at(NOON), Weights(), np.array([1])
    computed: list[str] = []

    def counted(name: str, compute: NodeColumn) -> NodeColumn:
        def column(nodes: Nodes, given: object) -> Floats:
            computed.append(name)
            return compute(nodes, given)

        return column

    with patch.dict(NODE_COLUMNS, {n: counted(n, each) for n, each in NODE_COLUMNS.items()}):
        node_terms_of(columns, NOON, 0, weights)
        assert computed == []
        for _ in range(2):
            node_terms_of(columns, NOON, 0, weights).of("draining", rows)

    assert computed == ["draining"]


def test_columns_are_freed_without_a_garbage_collection() -> None:
    columns = read_at(NOON)
    node_terms_of(columns, NOON, 0, Weights()).of("measured_w", np.array([1]))
    gc.disable()
    try:
        gone = weakref.ref(columns)
        del columns
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("sampled_at", "now", "basis"),
    [
        (NOON, NOON + 60 * SECOND, ScoreBasis.MEASURED),
        (NOON, NOON + 60 * SECOND + 1, ScoreBasis.PREDICTED),
        (None, 30 * SECOND, ScoreBasis.PREDICTED),
    ],
    ids=["as old as it may be", "older", "none, at the beginning of time"],
)
def test_a_reading_counts_as_long_as_it_is_not_stale(
    sampled_at: int | None, now: int, basis: ScoreBasis
) -> None:
    samples = () if sampled_at is None else (Sample(sampled_at, 250_000),)
    state = NodeState(ordinal=0, at=now, hardware=hardware("n0"), samples=samples)

    terms = node_terms_of(TwinColumns.of({"n0": state}, 0), now, 0, Weights(staleness_s=60.0))

    assert terms.basis[-1] == basis


def test_a_column_of_the_terms_has_the_values_of_the_nodes() -> None:
    nodes = {
        f"n{at}": NodeState(
            ordinal=at, at=NOON, hardware=hardware("n"), samples=(Sample(NOON, watts * 1000),)
        )
        for at, watts in enumerate((250, 100))
    }
    terms = node_terms_of(TwinColumns.of(nodes, 0), NOON, 0, Weights())

    assert terms.of("measured_w", np.array([2, 1])).tolist() == [100.0, 250.0]


def test_what_a_score_rests_on_has_the_numbers_of_the_log() -> None:
    assert {each.name: each.value for each in ScoreBasis} == {
        "UNDISCOVERED": -1,
        "NEUTRAL": 0,
        "PREDICTED": 1,
        "MEASURED": 2,
        "CARDS": 3,
        "ENERGY": 4,
    }
