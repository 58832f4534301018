"""The power of nodes, racks and the cluster, with the numbers of the specification."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import SECOND, ask, bound, caps, hardware, node_seen, noon, power, records
from joulie_bus.events import Fact, PodBound
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState, NodeState, Sample
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.power import Coefficients
from joulie_projections.twin.totals import (
    Measurement,
    RunningTotals,
    Totals,
    drawn_w,
    measurement_of,
    psu_stress,
    totals_of,
)


def node(*facts: Fact) -> NodeState:
    draft = Draft(ClusterState())
    fold(draft, records(*facts), 0)
    found = draft.nodes.get("n")
    assert found is not None
    return found


def in_rack(name: str) -> NodeState:
    return NodeState(ordinal=0, at=1, labels={"joulie.io/rack": name} if name else {})


def test_a_fresh_reading_takes_precedence_over_the_model() -> None:
    reading = replace(power("n", 412.5), provider="agent")
    state = node(hardware("n", gpus=2), caps("n", 60, 50), bound("p", "n"), reading)

    assert measurement_of(state, noon(13)) == Measurement(
        source="kepler",
        provider="agent",
        age_s=10,
        measured_w=412.5,
        cpu_capped_w=432,
        gpu_capped_w=700,
        cpu_tdp_w=720,
        gpu_tdp_w=1400,
        trend_w_per_min=0,
    )


@pytest.mark.parametrize(
    ("facts", "source", "watts"),
    [
        pytest.param([power("n", 500)], "kepler", 500, id="measured"),
        pytest.param(
            [bound("p", "n")], "utilization", 720 / 2 + 0.7 * 720 / 96, id="idle power and its pods"
        ),
        pytest.param(
            [bound("p", "n"), caps("n", 40)], "utilization", 288, id="at most what its caps allow"
        ),
        pytest.param([], "static", 720, id="no pods"),
        pytest.param([caps("n", 60)], "static", 432, id="no pods and a cap"),
    ],
)
def test_the_power_of_a_node_has_a_source(facts: list[Fact], source: str, watts: float) -> None:
    found = measurement_of(node(hardware("n"), *facts), noon(5))

    assert found.source == source
    assert found.measured_w == pytest.approx(watts)


def test_without_a_reading_measured_cards_draw_by_their_curve() -> None:
    found = hardware("n", gpus=8)
    curve = (73_000, 125_000, 199_000, 307_000, 483_000, 629_000, 692_000)
    measured = replace(found, figures=replace(found.figures, gpu_curve_mw=curve))
    half = Coefficients(cpu=0.0, gpu_standard=0.5)

    watts = [
        measurement_of(
            node(each, PodBound(pod=ask("p", gpus=2), node="n")), noon(5), coefficients=half
        ).measured_w
        for each in (measured, found)
    ]

    assert watts == [360 + 6 * 73 + 2 * 483, 360 + 0.1 * 8 * 700 + 0.5 * 2 * 700]


def test_a_reading_is_used_until_it_is_stale_and_its_age_is_still_reported() -> None:
    state = node(hardware("n"), power("n", 500))
    last, after = (measurement_of(state, noon(1 + 300) + more * SECOND) for more in (0, 1))

    assert (last.source, last.age_s, last.measured_w) == ("kepler", 300, 500)
    assert (after.source, after.age_s, after.measured_w) == ("static", 301, 720)


@pytest.mark.parametrize("second", [1, 11, 310, 311, 1000])
@pytest.mark.parametrize(
    "facts", [[], [power("n", 500)], [bound("p", "n"), caps("n", 40)]], ids=str
)
def test_the_power_alone_is_that_of_the_measurement(facts: list[Fact], second: int) -> None:
    state = node(hardware("n"), *facts)

    assert drawn_w(state, noon(second)) == measurement_of(state, noon(second)).measured_w


@pytest.mark.parametrize(
    ("rack", "stress"),
    [
        pytest.param("r1", 60, id="30 kW of 50 kW"),
        pytest.param("r2", 100, id="at most 100"),
        pytest.param("small", 50, id="a configured capacity"),
        pytest.param("empty", 0, id="no power"),
        pytest.param("", 100, id="no rack: the whole cluster"),
    ],
)
def test_psu_stress_is_the_used_share_of_the_racks_feed(rack: str, stress: float) -> None:
    totals = Totals(91_000_000, {"r1": 30_000_000, "r2": 60_000_000, "small": 1_000_000})

    assert psu_stress(in_rack(rack), totals, {"small": 2000}) == stress


def test_racks_and_the_cluster_are_sums_of_their_nodes() -> None:
    nodes = {"a": in_rack("r1"), "b": in_rack("r1"), "c": in_rack("r2"), "d": in_rack("")}

    totals = totals_of({"a": 1, "b": 2.5, "c": 4, "d": 8}, nodes)

    assert totals == Totals(15_500, {"r1": 3_500, "r2": 4_000})


@given(watts=st.lists(st.floats(0, 1e5), max_size=30), data=st.data())
@settings(deadline=None, max_examples=50)
def test_sums_do_not_depend_on_the_order_of_nodes(watts: list[float], data: st.DataObject) -> None:
    drawn = {f"n{number}": value for number, value in enumerate(watts)}
    nodes = {name: in_rack(f"r{number % 3}") for number, name in enumerate(drawn)}
    shuffled = {name: drawn[name] for name in data.draw(st.permutations(sorted(drawn)))}

    assert totals_of(shuffled, nodes) == totals_of(drawn, nodes)


def test_the_example_node_of_the_specification_has_1440_of_2400_watts() -> None:
    found = replace(
        hardware("n", watts=400, gpus=4), cpu_sockets=2, gpu_max_mw=400_000, cpu_cores=192
    )
    state = node(node_seen("n"), found, caps("n", 60, 60))

    assert measurement_of(state, noon()).node_capped_w == 1440
    assert measurement_of(state, noon()).node_tdp_w == 2400


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["n1", "n2", "n3"]),
        st.sampled_from(["", "r1", "r2"]),
        st.integers(0, 9_000_000),
        st.booleans(),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=100)
@given(CHANGES)
def test_running_totals_equal_totals_computed_at_once(
    changes: list[tuple[str, str, int, bool]],
) -> None:
    running, nodes = RunningTotals(), dict[str, NodeState]()
    for name, rack, milliwatts, stays in changes:
        reading = (Sample(noon(), milliwatts),)
        nodes[name] = replace(in_rack(rack), samples=reading)
        running.follow(nodes, noon())
        if not stays:
            del nodes[name]
    running.follow(nodes, noon())

    drawn = {name: node.samples[-1].power_mw / 1000 for name, node in nodes.items()}
    expected = totals_of(drawn, nodes)
    assert running.totals.cluster_mw == expected.cluster_mw
    assert {rack: mw for rack, mw in running.totals.racks_mw.items() if mw} == {
        rack: mw for rack, mw in expected.racks_mw.items() if mw
    }


def test_running_totals_drop_a_stale_reading() -> None:
    running, nodes = RunningTotals(), {"n": node(hardware("n"), power("n", 10))}
    running.follow(nodes, noon(5))
    fresh = running.totals.cluster_mw
    running.follow(nodes, noon(400))

    assert (fresh, running.totals.cluster_mw) == (10_000, 720_000)
