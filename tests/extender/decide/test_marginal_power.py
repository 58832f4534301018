"""Cached marginal power equals computed marginal power."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import reference_scoring
from bus_kit import NOON, ask
from joulie_bus.events import PodAsk
from joulie_extender.catalogue.weights import Weights
from joulie_extender.terms import marginal_power
from joulie_extender.terms.marginal_power import CACHED_SHAPES, SHAPES_SEEN_ONCE, MarginalPower
from joulie_projections.state.state import NodeState
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import marginal_w

GiB = 2**30
COEFFICIENTS = Weights().coefficients
NODE = NodeState(ordinal=0, at=NOON)
shapes = st.builds(
    lambda cores, gpus, memory, performance: replace(
        ask(cores=cores, gpus=gpus, performance=performance), memory_bytes=memory * GiB
    ),
    st.sampled_from([0, 1, 4, 200]),
    st.sampled_from([0, 0.5, 2]),
    st.sampled_from([0, 8, 64]),
    st.booleans(),
)


def twin_columns_of(*states: NodeState) -> TwinColumns:
    named = {f"n{at}": replace(state, ordinal=at) for at, state in enumerate(states)}
    return TwinColumns.of(named, NOON)


@settings(deadline=None, max_examples=100)
@given(st.lists(reference_scoring.states, min_size=1, max_size=5), st.lists(shapes, max_size=12))
def test_what_is_remembered_is_what_would_be_worked_out(
    states: list[NodeState], pods: list[PodAsk]
) -> None:
    twin_columns = twin_columns_of(*states)
    cached = MarginalPower(twin_columns, COEFFICIENTS)
    rows = np.arange(len(twin_columns.columns["at"]))[::-1]
    for pod in pods * 3:
        worked_out = marginal_w(pod, twin_columns.rated(), COEFFICIENTS)[rows]
        assert cached.of(pod, rows).tobytes() == worked_out.tobytes()


def test_a_repeated_pod_shape_is_computed_once_for_all_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worked_out: list[int] = []

    def counted(*asked: object) -> object:
        watts = marginal_w(*asked)  # type: ignore[arg-type]
        worked_out.append(len(watts))
        return watts

    monkeypatch.setattr(marginal_power, "marginal_w", counted)
    cached = MarginalPower(twin_columns_of(*[NODE] * 9), COEFFICIENTS)
    for _ in range(5):
        cached.of(ask(), np.array([1, 2]))

    assert worked_out == [2, 10]


def test_the_number_of_cached_shapes_is_bounded() -> None:
    cached = MarginalPower(twin_columns_of(NODE), COEFFICIENTS)
    for cores in [*range(1, 200), *range(180, 200)]:
        cached.of(ask(cores=cores), np.array([1]))

    assert (len(cached._watts), len(cached._seen_once)) == (CACHED_SHAPES, SHAPES_SEEN_ONCE - 20)


def test_they_hold_until_the_hardware_changes() -> None:
    twin_columns = twin_columns_of(NODE, NODE)
    cached = MarginalPower(twin_columns, COEFFICIENTS)
    told = replace(NODE, profile="eco")
    grown = replace(told, cpu_milli=64_000)

    assert cached.is_valid_for(twin_columns.updated([("n0", told)], NOON))
    assert not cached.is_valid_for(twin_columns.updated([("n0", grown)], NOON))
