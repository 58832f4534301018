"""The twin of one node, trends, and the twins as columns."""

from statistics import linear_regression, median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import (
    ANY_FACTS,
    any_fact,
    bound,
    caps,
    draining,
    eco,
    hardware,
    node_seen,
    noon,
    performance,
    power,
    records,
)
from joulie_bus.events import Fact, HardwareDiscovered, NodeGone
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState, NodeState, Sample
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.facility import NO_HALLS, Hall, Halls, halls_of
from joulie_projections.twin.twin import NodeClass, Source, Twin, trend_w_per_min, twin_of

FACTS = st.lists(st.integers(0, ANY_FACTS - 1).map(any_fact), max_size=40)
WARM = Halls(("hall",), (Hall(ambient_c=25), Hall(ambient_c=25)))


def node_after(*facts: Fact) -> NodeState:
    draft = Draft(ClusterState())
    fold(draft, records(*facts), 0)
    node = draft.nodes.get("n")
    assert node is not None
    return node


def twin_after(*facts: Fact) -> Twin:
    return twin_of(node_after(*facts), NO_HALLS)


def found(
    *,
    sockets: int = 2,
    watts: int = 400,
    cores: int = 96,
    gpus: int = 0,
    gpu_w: int = 0,
    gpu: str = "",
) -> HardwareDiscovered:
    return HardwareDiscovered(
        node="n",
        cpu_model="",
        cpu_sockets=sockets,
        cpu_cores=cores,
        cpu_max_mw_per_socket=watts * 1000,
        gpu_model=gpu,
        gpu_count=gpus,
        gpu_max_mw=gpu_w * 1000,
    )


# --- the twin of one node ---------------------------------------------------------------------


def test_caps_determine_the_capped_power_the_cooling_and_the_headroom() -> None:
    node = node_after(found(gpus=4, gpu_w=400), caps("n", 60, 60))

    twin = twin_of(node, WARM)

    assert (twin.capped_w, twin.tdp_w) == (1440, 2400)
    assert twin.cooling == pytest.approx(31.3)
    assert twin.headroom == pytest.approx(41.22)


def test_without_caps_the_capped_power_is_the_tdp() -> None:
    twin = twin_after(found(gpus=4, gpu_w=400))

    assert (twin.capped_w, twin.cooling, twin.headroom) == (2400, 48, 52)


def test_the_headroom_of_a_node_without_gpus_uses_the_cpu_cap_alone() -> None:
    twin = twin_after(found(watts=500), caps("n", 60, 10))

    assert twin.headroom == pytest.approx(60 * (1 - 0.12))


def test_undiscovered_hardware_is_estimated_from_allocatable_resources() -> None:
    twin = twin_after(node_seen("n", cores=96, gpus=2))

    assert (twin.hardware, twin.cores, twin.cpu_max_w) == (Source.ALLOCATABLE, 96, 336)
    assert (twin.gpus, twin.gpu_max_w, twin.capped_w) == (2, 350, 336 + 700)


@pytest.mark.parametrize(
    ("gpu", "watts"), [("AMD Instinct MI300X", 400), ("NVIDIA L4", 350)], ids=["AMD", "NVIDIA"]
)
def test_missing_figures_of_discovered_hardware_are_estimated(gpu: str, watts: float) -> None:
    twin = twin_after(found(watts=0, cores=100, gpus=1, gpu=gpu))

    assert (twin.hardware, twin.cpu_max_w, twin.gpu_max_w) == (Source.DISCOVERED, 350, watts)


def test_a_node_with_only_power_readings_has_no_hardware() -> None:
    twin = twin_after(power("n", 312.5))

    assert (twin.hardware, twin.capped_w, twin.measured_w) == (Source.NONE, 0, 312.5)
    assert (twin.at, twin.sampled_at) == (noon(), noon())


@pytest.mark.parametrize(
    ("plans", "expected"),
    [
        ((), NodeClass.UNKNOWN),
        ((performance("n"),), NodeClass.PERFORMANCE),
        ((eco("n"),), NodeClass.ECO),
        ((performance("n"), draining("n")), NodeClass.DRAINING),
        ((performance("n"), draining("n"), eco("n")), NodeClass.ECO),
    ],
    ids=["no plan", "performance", "eco", "draining", "drained"],
)
def test_draining_takes_precedence_over_the_profile(
    plans: tuple[Fact, ...], expected: NodeClass
) -> None:
    assert twin_after(node_seen("n"), *plans).node_class == expected


@pytest.mark.parametrize(
    ("facts", "density"),
    [
        (found(cores=96), 50),
        (found(cores=384), 100),
        (found(cores=96, gpus=4), 50),
        (found(cores=0, gpus=16), 50),
    ],
    ids=["half the cores", "more than the reference", "half of both", "cards only"],
)
def test_density_is_the_mean_of_cores_and_cards_if_there_are_cards(
    facts: HardwareDiscovered, density: float
) -> None:
    assert twin_after(facts).density == density


# --- the trend --------------------------------------------------------------------------------


def readings(*watts: float, every_s: float = 10) -> tuple[Sample, ...]:
    return tuple(
        Sample(noon(number * every_s), round(value * 1000)) for number, value in enumerate(watts)
    )


@pytest.mark.parametrize("count", [2, 3, 4, 5, 30])
@pytest.mark.parametrize("slope", [-90, 0, 120])
def test_the_trend_of_a_line_is_its_slope(count: int, slope: int) -> None:
    line = readings(*(500 + slope / 6 * number for number in range(count)))

    assert trend_w_per_min(line) == pytest.approx(slope)


def test_the_trend_of_a_line_with_an_early_last_reading_is_its_slope() -> None:
    line = (*readings(100, 200, 300, 400), Sample(noon(32), 420_000))

    assert trend_w_per_min(line) == pytest.approx(600)


@pytest.mark.parametrize("where", range(12))
@pytest.mark.parametrize("outlier", [0, 10_000])
def test_one_outlier_changes_the_trend_little(where: int, outlier: float) -> None:
    calm = [500 + number for number in range(12)]
    wrong = [*calm[:where], outlier, *calm[where + 1 :]]

    assert trend_w_per_min(readings(*wrong)) == pytest.approx(6, abs=2)


@pytest.mark.parametrize("count", range(3, 9))
@pytest.mark.parametrize("outlier", [0, 5_000])
@pytest.mark.parametrize("every_s", [5, 10, 60])
def test_one_outlier_of_a_steady_node_gives_no_trend(
    count: int, outlier: float, every_s: float
) -> None:
    for where in range(count):
        watts = [500] * count
        watts[where] = int(outlier)

        assert trend_w_per_min(readings(*watts, every_s=every_s)) == 0, where


def test_the_trend_of_three_readings_is_the_flattest_slope_between_two() -> None:
    assert trend_w_per_min(readings(500, 600, 900)) == 600
    assert trend_w_per_min(readings(900, 800, 500)) == -600
    assert trend_w_per_min(readings(500, 900, 600)) == 0


@pytest.mark.parametrize(
    "few",
    [(), readings(100), readings(100, 900, every_s=5.9), readings(1, 2, 3, 4, 5, every_s=1)],
    ids=["none", "one", "two too close", "five too close"],
)
def test_too_few_or_too_close_readings_have_no_trend(few: tuple[Sample, ...]) -> None:
    assert trend_w_per_min(few) == 0


def test_six_seconds_are_enough_for_a_trend() -> None:
    assert trend_w_per_min(readings(100, 160, every_s=6)) == pytest.approx(600)


def slope_of_medians(watts: list[int]) -> float:
    """The trend in W per minute of readings ten seconds apart, by its definition."""
    inner = [median(watts[at : at + 3]) for at in range(len(watts) - 2)]
    first = median([watts[0], inner[0], 3 * inner[0] - 2 * inner[1]])
    last = median([watts[-1], inner[-1], 3 * inner[-1] - 2 * inner[-2]])
    line = linear_regression(range(len(watts)), [first, *inner, last])
    return line.slope * 6


@given(watts=st.lists(st.integers(0, 20_000), min_size=4, max_size=31))
@settings(deadline=None, max_examples=100)
def test_a_trend_is_the_slope_of_the_medians_of_three(watts: list[int]) -> None:
    assert trend_w_per_min(readings(*watts)) == pytest.approx(slope_of_medians(watts), abs=1e-6)


@given(
    watts=st.lists(st.integers(0, 20_000), min_size=2, max_size=31), offset=st.integers(0, 5_000)
)
@settings(deadline=None, max_examples=60)
def test_a_trend_ignores_an_offset_and_changes_sign_with_reversed_time(
    watts: list[int], offset: int
) -> None:
    trend = trend_w_per_min(readings(*watts))

    assert trend_w_per_min(readings(*(value + offset for value in watts))) == trend
    assert trend_w_per_min(readings(*reversed(watts))) == pytest.approx(-trend, abs=1e-6)


# --- the columns ------------------------------------------------------------------------------


def content(twin_columns: TwinColumns) -> dict[str, list[object]]:
    """Every column up to the last used row."""
    used = max(twin_columns.rows.values(), default=0) + 1
    assert all(not column[used:].any() for column in twin_columns.columns.values())
    return {name: column[:used].tolist() for name, column in twin_columns.columns.items()}


def after_each(facts: list[Fact], batch: int) -> tuple[TwinColumns, ClusterState]:
    """Updates the columns incrementally, as a reader does."""
    cluster_state, twin_columns = ClusterState(), TwinColumns.empty()
    log = records(*facts)
    for first in range(0, len(log), batch):
        draft = Draft(cluster_state)
        fold(draft, log[first : first + batch], 0)
        changed = dict(draft.nodes.changes)
        draft.commit()
        twin_columns = twin_columns.following(cluster_state, changed)
    return twin_columns, cluster_state


@given(facts=FACTS, batch=st.integers(1, 10))
@settings(deadline=None, max_examples=100)
def test_columns_updated_row_by_row_equal_columns_built_at_once(
    facts: list[Fact], batch: int
) -> None:
    twin_columns, cluster_state = after_each(facts, batch)
    rebuilt = TwinColumns.of(
        cluster_state.nodes, cluster_state.planned_at, halls_of(cluster_state.facilities)
    )

    assert twin_columns.rows == rebuilt.rows
    assert content(twin_columns) == content(rebuilt)


def test_an_update_does_not_change_the_old_columns() -> None:
    old = TwinColumns.of({"n": node_after(power("n", 100))}, 0)
    before = content(old)

    new = old.updated([("n", node_after(power("n", 900))), ("m", node_after(power("n", 5)))], 7)

    assert (content(old), dict(old.rows), old.planned_at) == (before, {"n": 1}, 0)
    assert (new.floats("measured_w")[1], len(new), new.planned_at) == (5, 2, 7)


def test_unchanged_columns_are_shared() -> None:
    old = TwinColumns.of({"n": node_after(found(), power("n", 100))}, 0)

    new = old.updated([("n", node_after(found(), power("n", 900)))], 0)

    own = {name for name, column in new.columns.items() if column is not old.columns[name]}
    assert own == {"measured_w"}


def test_a_deleted_node_leaves_a_row_of_zeros() -> None:
    twin_columns = TwinColumns.of({"n": node_after(found(), power("n", 100), eco("n"))}, 0)

    without = twin_columns.updated([("n", None)], 0)

    assert (len(without), without.rows) == (0, {})
    assert all(not column.any() for column in without.columns.values())


def test_a_node_recreated_between_two_updates_leaves_its_old_row() -> None:
    gone = NodeGone(node="n")
    facts: list[Fact] = [node_seen("n"), power("n", 100), gone, node_seen("m"), node_seen("n")]

    twin_columns, _ = after_each(facts, 2)

    assert twin_columns.rows == {"m": 1, "n": 2}
    assert twin_columns.ints("at").tolist() == [0, noon(3), noon(4)]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (("n", node_after(power("n", 900))), True),
        (("n", None), False),
        (("m", replace(node_after(power("n", 5)), ordinal=1)), False),
        (("n", replace(node_after(power("n", 5)), ordinal=1)), False),
        (("ghost", None), True),
    ],
    ids=["changed", "deleted", "new", "recreated in another row", "unknown"],
)
def test_the_mapping_of_rows_is_shared_while_no_node_is_added_or_removed(
    change: tuple[str, NodeState | None], same: bool
) -> None:
    twin_columns = TwinColumns.of({"n": node_after(power("n", 100))}, 0)

    after = twin_columns.updated([change], 0)
    assert (after.rows is twin_columns.rows) == same
    assert twin_columns.rows == {"n": 1}


def test_row_zero_is_all_zeros() -> None:
    twin_columns = TwinColumns.of(
        {"n": node_after(hardware("n", gpus=8), bound("p", "n"))}, noon(9)
    )

    assert all(not column[0] for column in twin_columns.columns.values())
    assert twin_columns.updated_at()[0] == 0


def test_a_twin_is_as_recent_as_its_newest_fact_or_the_last_plan() -> None:
    nodes = {"n": node_after(power("n", 1), power("n", 2))}

    assert TwinColumns.of(nodes, noon(60)).updated_at().tolist() == [0, noon(60)]
    assert TwinColumns.of(nodes, noon(-60)).updated_at().tolist() == [0, noon(1)]


def test_unknown_hardware_has_one_core_and_no_power() -> None:
    first, second = node_after(found(cores=10)), node_after(power("x", 1), found(cores=20, gpus=1))
    twin_columns = TwinColumns.of({"a": first, "b": second}, 0)

    rated = twin_columns.rated()

    assert (rated.cores.tolist(), rated.gpus.tolist()) == ([1, 10, 20], [0, 0, 1])
    assert (rated.cpu_max_w > 0).tolist() == [False, True, True]
