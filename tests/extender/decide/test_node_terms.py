"""Node terms updated from the previous snapshot equal those computed from scratch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_scoring
from joulie_bus.testing import NOON, ask
from joulie_extender.decide import node_terms as room
from joulie_extender.decide.node_terms import NodeTerms, Weights, node_terms_of
from joulie_projections.state.state import NodeState, Sample
from joulie_projections.twin.columns import TwinColumns
from state_sequence import NODES, StateSequence, Step, firsts, steps

KINDS = [ask(cores=2), ask(cores=8, gpus=2, performance=True)]


def same(found: NodeTerms, expected: NodeTerms) -> bool:
    """Compares every bit of every node's row; rows of removed nodes are ignored."""
    rows = slice(len(expected.basis))
    pairs = zip(found.columns, expected.columns, strict=True)
    columns = all(one[rows].tobytes() == other.tobytes() for one, other in pairs)
    there = np.arange(len(expected.basis))
    is_as_dear = all(
        found.marginal_power.of(pod, there).tobytes()
        == expected.marginal_power.of(pod, there).tobytes()
        for pod in KINDS * 2
    )
    return columns and is_as_dear and found.cluster == expected.cluster


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(firsts, st.lists(steps, min_size=3, max_size=6), reference_scoring.any_weights)
def test_a_standing_that_is_carried_on_is_the_one_that_is_worked_out_afresh(
    first: list[NodeState], course: list[Step], weights: Weights
) -> None:
    at = StateSequence.of(first)
    node_terms_of(at.twin_columns, at.now, 0, weights)
    for step in course:
        at = at.after(step)
        if step.is_looked_at:
            found = node_terms_of(at.twin_columns, at.now, step.age_ms, weights)
            afresh = TwinColumns.of(at.nodes, at.twin_columns.planned_at, step.halls)
            assert same(found, node_terms_of(afresh, at.now, step.age_ms, weights))


def profiled(twin_columns: TwinColumns) -> TwinColumns:
    return twin_columns.updated([("n3", NodeState(ordinal=3, at=NOON, profile="eco"))], 0)


def measured(twin_columns: TwinColumns) -> TwinColumns:
    return twin_columns.with_readings(
        [NodeState(ordinal=3, at=NOON, samples=(Sample(NOON, 250_000),))]
    )


def changed_once(
    weights: Weights, change: Callable[[TwinColumns], TwinColumns] = profiled
) -> list[int]:
    """How many rows were looked at, for a board and for the next one."""
    whole = {f"n{number}": NodeState(ordinal=number, at=NOON) for number in range(NODES)}
    twin_columns = TwinColumns.of(whole, 0)
    node_terms_of(twin_columns, NOON, 0, weights)
    later = change(twin_columns)
    looked: list[int] = []
    alone = room._row_by_row

    def counted(twin_columns: TwinColumns, *more: Any) -> tuple[NodeTerms, int]:
        looked.append(len(twin_columns.columns["at"]))
        return alone(twin_columns, *more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(room, "_row_by_row", counted)
        node_terms_of(later, NOON, 0, weights)
    return looked


@pytest.mark.parametrize("change", [profiled, measured])
def test_only_changed_rows_are_recomputed(
    change: Callable[[TwinColumns], TwinColumns],
) -> None:
    assert changed_once(Weights(), change) == [1]


def test_a_cooling_model_of_a_plugin_recomputes_all_rows() -> None:
    """It may compare them with each other."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(room, "model_named", lambda _: lambda heat: np.zeros(len(heat.power_w)))
        assert changed_once(Weights(cooling_model="theirs")) == [NODES + 1]
