"""Counters of energy in readings: differences lose nothing and count nothing twice."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus_kit import bound, card, node_seen, power, records
from energy_histories import J, Timed, folded, ledger_of
from joulie_bus.events import PodFinished, TelemetrySampled
from joulie_projections.energy.report import EnergyReport, report_of


def report(facts: Sequence[Timed], by: str = "pod") -> EnergyReport:
    hours = [each for each in folded(*facts) if each.grain == "hour"]
    return report_of(hours, by)  # type: ignore[arg-type]


def counted(joules: int, watts: int = 100, began: int = 1, **more: object) -> TelemetrySampled:
    return TelemetrySampled(
        node="n1",
        power_mw=watts * 1000,
        counted_from=began,
        energy_uj=joules * J,
        **more,  # type: ignore[arg-type]
    )


def test_the_difference_of_two_counters_is_the_energy_between_them() -> None:
    found = report([(0, counted(50)), (10, counted(1200, watts=300))])
    assert found.meter_uj == 1150 * J


def test_a_mean_counts_where_there_is_no_counter() -> None:
    mean = TelemetrySampled(node="n1", power_mw=300_000, mean_mw=120_000)
    assert report([(0, power("n1", 100)), (10, mean)]).meter_uj == 1200 * J


def test_a_gap_with_a_counter_is_no_gap() -> None:
    others: list[Timed] = [(at, power("n2", 0)) for at in range(0, 1000, 50)]
    found = report([(0, counted(0)), *others, (1000, counted(70_000))])
    assert (found.meter_uj, found.unknown_uj, found.unknown_ms) == (70_000 * J, 0, 0)


def test_a_pod_has_the_energy_of_a_gap_for_the_time_that_it_ran() -> None:
    found = report(
        [
            (0, counted(0, watts=0)),
            (0, bound("a", "n1")),
            (500, PodFinished(uid="a")),
            (500, bound("b", "n1")),
            (1000, counted(8000, watts=0)),
        ]
    )
    shares = {name: share.pods_uj for name, share in found.by.items() if share.pods_uj}
    assert shares == {"team/a": 4000 * J, "team/b": 4000 * J}


def test_a_counter_that_began_again_counts_nothing_twice() -> None:
    found = report([(0, counted(5000)), (10, counted(40, began=2)), (20, counted(1040, began=2))])
    assert found.meter_uj == 1000 * J + 1000 * J  # by power, and by the second counter


def test_a_counter_that_rises_faster_than_any_node_is_not_believed() -> None:
    found = report([(0, counted(0)), (10, counted(10**12)), (20, counted(10**12 + 500))])
    assert found.meter_uj == 1000 * J + 500 * J


def test_a_late_reading_counts_at_the_time_at_which_it_was_made() -> None:
    facts: list[Timed] = [(0, power("n1", 100))]
    facts += [(900, counted(at * 100, late_ms=(900 - at) * 1000)) for at in range(10, 900, 10)]
    found = report([*facts, (910, counted(91_000))])
    assert (found.meter_uj, found.unknown_ms) == (91_000 * J, 0)


def test_cards_are_counted_as_nodes_are() -> None:
    def cards(joules: int, began: int = 1) -> TelemetrySampled:
        return counted(10 * joules, began=began, card_mw={"x": 5000}, card_uj=(joules * J,))

    facts: list[Timed] = [(0, node_seen("n1", gpus=1)), (0, card("x", "n1"))]
    found = report([*facts, (0, cards(0)), (100, cards(300)), (110, cards(7, began=2))], "card")
    assert found.by["n1/x"].energy_uj == (300 + 50) * J


Counted = tuple[float, TelemetrySampled]
STEPS = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 2000)), min_size=2, max_size=30)


@pytest.mark.parametrize(
    "former", [counted(1, began=0), counted(1)], ids=["that never began", "that ends"]
)
def test_a_counter_that_a_reading_lacks_is_forgotten_wherever_a_fold_is_cut(
    former: TelemetrySampled,
) -> None:
    history = records(former, power("n1", 100), counted(5, began=0), power("n1", 100))

    states = [ledger_of(history, cuts) for cuts in ([], [1], [1, 2], [1, 2, 3], [2], [3])]

    assert states == [states[0]] * len(states)


@st.composite
def readings(draw: st.DrawFn) -> list[Counted]:
    """Of one counter, at least one second apart, up to an hour."""
    at, joules, found = 0, 0, list[Counted]()
    for seconds, watts in draw(STEPS):
        if (at := at + seconds) > 3500:
            break
        joules += watts * seconds
        found.append((at, counted(joules, watts)))
    return found


@given(readings(), st.data())
def test_lost_readings_lose_no_energy(every: list[Counted], data: st.DataObject) -> None:
    inner = every[1:-1]
    kept = data.draw(st.lists(st.sampled_from(inner), unique_by=id)) if inner else []
    some = [each for each in every if each in (every[0], every[-1]) or each in kept]
    assert report(some).meter_uj == report(every).meter_uj == total_uj(every)


@given(readings(), st.data())
def test_repeated_and_former_readings_change_nothing(
    every: list[Counted], data: st.DataObject
) -> None:
    mixed: list[Counted] = []
    for at, fact in every:
        mixed.append((at, fact))
        former = data.draw(st.lists(st.sampled_from(mixed), max_size=2))
        mixed += [(at + 0.25, fact) for _, fact in former]
    assert report(mixed).meter_uj == total_uj(every)


@given(readings(), st.data())
def test_a_counter_that_begins_again_at_any_time_is_never_counted_twice(
    every: list[Counted], data: st.DataObject
) -> None:
    """The energy of the window in which it began again is that of its power, and no more."""
    at_reset = data.draw(st.integers(1, len(every))) if every else 0
    first, second = every[:at_reset], every[at_reset:]
    if not second:
        return
    begun = first[-1][1].energy_uj
    again = [
        (at, counted((fact.energy_uj - begun) // J, fact.power_mw // 1000, began=2))
        for at, fact in second
    ]
    (before_s, before), (after_s, after) = first[-1], again[0]
    span_s = after_s - before_s
    by_power = (before.power_mw + after.power_mw) * span_s * 1000 // 2
    assert report([*first, *again]).meter_uj == (
        total_uj(first) + total_uj(again) + (by_power if span_s <= 60 else 0)
    )


def total_uj(every: Sequence[Counted]) -> int:
    if not every:
        return 0
    return every[-1][1].energy_uj - every[0][1].energy_uj


def test_metered_pods_share_by_what_they_were_metered_at() -> None:
    """Both ask for the same; a used three times as much."""
    metered = {"a": 900 * J, "b": 300 * J}
    facts: list[Timed] = [
        (0, counted(0, pod_uj={"a": 0, "b": 0})),
        *((0, bound(uid, "n1")) for uid in "ab"),
        (1, counted(100, pod_uj={"a": 0, "b": 0})),
        (11, counted(100 + 2200, watts=300, pod_uj=metered)),
    ]
    shares = {name: share.pods_uj for name, share in report(facts).by.items()}
    assert shares["team/a"] == 3 * shares["team/b"] > 0


def test_a_pod_that_is_not_metered_shares_by_what_it_asks_for() -> None:
    facts: list[Timed] = [
        (0, counted(0)),
        *((0, bound(uid, "n1")) for uid in "ab"),
        (10, counted(3000, watts=300)),
    ]
    shares = {name: share.pods_uj for name, share in report(facts).by.items()}
    assert shares["team/a"] == shares["team/b"] > 0
