"""Halls: the temperature and the PUE around a node."""

import pytest

from bus_kit import eco, hardware, node_seen, polled, records
from joulie_bus.events import FacilityPolled, Fact
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState, FacilityReading, FacilityState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.facility import DEFAULT_HALL, Hall, hall_of, halls_of
from joulie_projections.twin.twin import Twin, twin_of


def after(*facts: Fact) -> ClusterState:
    cluster_state = ClusterState()
    draft = Draft(cluster_state)
    fold(draft, records(*facts), 0)
    draft.commit()
    return cluster_state


def facility(name: str, ambient_c: int) -> FacilityPolled:
    return FacilityPolled(facility=name, ambient_mdeg=ambient_c * 1000)


def twin(*facts: Fact) -> Twin:
    cluster_state = after(hardware("n"), *facts)
    return twin_of(cluster_state.nodes["n"], halls_of(cluster_state.facilities))


@pytest.mark.parametrize(
    ("it", "cooling", "hall"),
    [
        pytest.param(10_000, 6_000, Hall(20, 1.6, True), id="both polled"),
        pytest.param(10_000, None, DEFAULT_HALL, id="without cooling power"),
        pytest.param(None, 6_000, DEFAULT_HALL, id="without IT power"),
        pytest.param(0, 6_000, DEFAULT_HALL, id="no IT load"),
    ],
)
def test_the_pue_is_measured_or_one(it: int | None, cooling: int | None, hall: Hall) -> None:
    state = FacilityState(
        it_mw=None if it is None else FacilityReading(1, it),
        cooling_mw=None if cooling is None else FacilityReading(2, cooling),
    )

    assert hall_of(state) == hall


GOOD = FacilityPolled(facility="hall", it_mw=10_000, cooling_mw=6_000)


@pytest.mark.parametrize(
    "implausible",
    [
        pytest.param({"it_mw": 1, "cooling_mw": 3_000}, id="both"),
        pytest.param({"it_mw": 2_999}, id="IT power alone"),
        pytest.param({"cooling_mw": 20_001}, id="cooling power alone"),
    ],
)
def test_powers_with_an_implausible_pue_keep_the_last_valid_ones(
    implausible: dict[str, int],
) -> None:
    polled = FacilityPolled(facility="hall", ambient_mdeg=30_000, **implausible)
    found = twin(node_seen("n"), GOOD, polled)

    assert (found.pue, found.ambient_c) == (1.6, 30)
    assert twin(node_seen("n"), polled).pue == 1.0, "without a valid reading the PUE is assumed"


@pytest.mark.parametrize(("cooling_mw", "pue"), [(0, 1.0), (20_000, 3.0)])
def test_the_limits_of_a_plausible_pue_are_inclusive(cooling_mw: int, pue: float) -> None:
    edge = FacilityPolled(facility="hall", it_mw=10_000, cooling_mw=cooling_mw)

    assert twin(node_seen("n"), GOOD, edge).pue == pue


def test_a_valid_pair_after_a_rejected_one_is_used() -> None:
    implausible = FacilityPolled(facility="hall", it_mw=1, cooling_mw=3_000)
    later = FacilityPolled(facility="hall", it_mw=10_000, cooling_mw=2_000)

    assert twin(node_seen("n"), GOOD, implausible, later).pue == 1.2


def test_a_node_is_in_the_hall_that_its_zone_label_names() -> None:
    halls = facility("east", 30), facility("west", 15)

    assert twin(*halls, node_seen("n", cooling_zone="east")).ambient_c == 30
    assert twin(*halls, node_seen("n", cooling_zone="west")).ambient_c == 15
    assert twin(*halls, node_seen("n", cooling_zone="moon")).ambient_c == 20


def test_a_single_hall_contains_every_node() -> None:
    assert twin(facility("hall", 28), node_seen("n")).ambient_c == 28


def test_a_failed_poll_keeps_the_temperature() -> None:
    assert twin(polled(ambient_c=30), polled()).ambient_c == 30


def test_a_warmer_hall_changes_the_cooling_of_unchanged_nodes() -> None:
    cluster_state = after(hardware("n", watts=1000), eco("n"))
    cool = TwinColumns.empty().following(cluster_state, dict(cluster_state.nodes))
    draft = Draft(cluster_state)
    fold(draft, records(polled(ambient_c=30), name="poller"), 0)
    draft.commit()

    warm = cool.following(cluster_state, {})

    assert (cool.floats("cooling")[1], warm.floats("cooling")[1]) == (20, 25)
    assert (cool.floats("headroom")[1], warm.floats("headroom")[1]) == (80, 75)


def test_an_unchanged_cluster_state_has_the_same_columns() -> None:
    cluster_state = after(hardware("n"), polled(ambient_c=25))
    twin_columns = TwinColumns.empty().following(cluster_state, dict(cluster_state.nodes))

    assert twin_columns.following(cluster_state, {}) is twin_columns
