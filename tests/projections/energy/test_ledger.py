"""Energy from readings, pods and plans: the rule in examples, and its laws on random histories."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import hardware, node_seen, power
from bus_kit.clock import NOON
from bus_kit.pods import ask, bound
from energy_histories import (
    FACTS,
    STEPS_S,
    J,
    Timed,
    folded,
    histories_of,
    ledger_of,
    reading,
    usable,
)
from joulie_bus.events import (
    CapsSet,
    NodeGone,
    PodBound,
    PodFinished,
    SleepOrdered,
    TelemetrySampled,
    WakeOrdered,
)
from joulie_bus.streams.records import Record
from joulie_projections.energy.accepted import accepted
from joulie_projections.energy.intervals import PodEnergy
from joulie_projections.energy.ledger import Ledger
from joulie_projections.energy.meters import GAP_MS
from joulie_projections.energy.pods import MOST_EARLIER
from joulie_projections.energy.report import EnergyReport, report_of
from joulie_projections.energy.saved import LedgerState
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft


def report(*facts: Timed) -> EnergyReport:
    hours = [each for each in folded(*facts) if each.grain == "hour"]
    return report_of(hours, "pod")


def pods_of(*facts: Timed) -> dict[str, PodEnergy]:
    return {pod.uid: pod for each in folded(*facts) for pod in each.pods}


def test_energy_is_the_mean_power_times_the_time_between_two_readings() -> None:
    found = report((0, power("n1", 100)), (10, power("n1", 300)))

    assert found.meter_uj == 2000 * J
    assert found.idle_uj == found.meter_uj  # no pod ran


def test_power_above_the_lowest_reading_belongs_to_the_pod_that_ran() -> None:
    found = report(
        (0, power("n1", 100)), (1, bound("a", "n1")), (10, power("n1", 300)), (20, power("n1", 300))
    )

    assert (found.pods_uj, found.idle_uj) == (1000 * J + 2000 * J, 2000 * J)
    assert found.by["team/a"].pods_uj == found.pods_uj


def test_pods_share_by_the_power_that_they_ask_for() -> None:
    facts: list[Timed] = [(0, node_seen("n1", cores=10)), (0, hardware("n1", cores=10))]
    small, large = bound("small", "n1"), bound("large", "n1")
    large = type(large)(pod=ask("large", cores=3), node="n1")
    facts += [(0, power("n1", 100)), (0, small), (0, large), (10, power("n1", 500))]

    pods = pods_of(*facts)

    assert (pods["small"].pods_uj, pods["large"].pods_uj) == (500 * J, 1500 * J)
    assert (pods["small"].idle_uj, pods["large"].idle_uj) == (100 * J, 300 * J)  # of 1000 J


def test_a_pod_has_the_share_of_its_devices_from_when_they_are_known() -> None:
    """As if it had been bound with them, since the window before has no energy above idle."""
    others: list[Timed] = [(0, hardware("n1", gpus=8)), (1, bound("b", "n1"))]
    energy: list[Timed] = [(at, power("n1", 100 if at < 20 else 300)) for at in (2, 10, 20, 30)]

    def uj(*facts: Timed) -> int:
        timed = sorted([*others, *energy, *facts], key=lambda each: each[0])
        return pods_of(*timed)["a"].pods_uj

    late = uj((1, bound("a", "n1", devices=0)), (10.5, bound("a", "n1", devices=8)))

    assert late == uj((1, bound("a", "n1", devices=8)))
    assert late > uj((1, bound("a", "n1", devices=0)))


def test_a_resized_pod_counts_as_it_was_until_the_fact_and_as_it_is_from_then_on() -> None:
    """Whether the fact comes between two windows or within one."""
    others: list[Timed] = [(0, node_seen("n1", cores=10)), (0, hardware("n1", cores=10))]
    others += [(0, power("n1", 100)), (0, bound("a", "n1")), (0, bound("b", "n1"))]
    energy: list[Timed] = [(at, power("n1", 500)) for at in (10, 20, 30)]

    def shares(at: float, cores: float) -> tuple[tuple[int, int], ...]:
        resized = (at, bound("a", "n1", cores=cores))
        pods = pods_of(*others, *sorted([*energy, resized], key=lambda each: each[0]))
        return tuple((pods[uid].pods_uj // J, pods[uid].idle_uj // J) for uid in "ab")

    # Above idle 2000 J and twice 4000 J; idle 1000 J in each window, of which a core has a tenth.
    assert shares(10, cores=3) == ((1000 + 6000, 100 + 600), (1000 + 2000, 100 + 200))
    assert shares(25, cores=5) == ((3000 + 3000, 200 + 300), (3000 + 1000, 300))
    assert shares(25, cores=1) == shares(30, cores=5) == ((5000, 300), (5000, 300))


def test_the_power_of_a_metered_pod_stays_its_own_when_it_is_resized() -> None:
    def metered(joules: int) -> TelemetrySampled:
        each = {uid: joules * J for uid in "ab"}
        return TelemetrySampled(node="n1", power_mw=500_000, pod_uj=each, counted_from=1)

    facts: list[Timed] = [(0, power("n1", 100)), (0, bound("a", "n1")), (0, bound("b", "n1"))]
    facts += [(at, metered(at)) for at in (10, 20)]
    facts += [(25, bound("a", "n1", cores=9)), (30, metered(30))]
    pods = pods_of(*facts)

    assert pods["a"].pods_uj == pods["b"].pods_uj


def test_resizes_between_two_readings_are_counted_up_to_a_limit() -> None:
    """Of a node that is not metered they are forgotten one by one."""
    facts: list[Timed] = [
        (0, bound("a", "n1")),
        *((at, bound("a", "n1", cores=at)) for at in range(1, 99)),
    ]
    ledger = Ledger()
    ledger.fold((fact, NOON + round(at * 1e9)) for at, fact in facts)

    assert len(ledger.pods["a"].earlier) == MOST_EARLIER
    assert ledger.pods["a"].cpu_milli == 98_000
    ledger.fold((power("n1", 1), NOON + at * 10**9) for at in (100, 110))
    assert ledger.pods["a"].earlier == []


def test_a_pod_shares_a_window_for_the_time_that_it_ran() -> None:
    pods = pods_of(
        (0, power("n1", 0)),
        (0, bound("a", "n1")),
        (7.5, PodFinished(uid="a")),
        (7.5, bound("b", "n1")),
        (10, power("n1", 200)),
    )

    assert (pods["a"].pods_uj, pods["b"].pods_uj) == (750 * J, 250 * J)


def test_a_pod_that_was_stored_after_the_reading_has_no_part_of_its_window() -> None:
    pods = pods_of(
        (0, power("n1", 0)),
        (11, bound("a", "n1")),
        (10, power("n1", 200)),
        (20, power("n1", 200)),
    )

    assert pods["a"].pods_uj == 2000 * J


def test_a_gap_is_unknown_and_in_no_other_figure() -> None:
    found = report((0, power("n1", 100)), (100, power("n1", 100)), (110, power("n1", 100)))

    assert (found.meter_uj, found.unknown_uj, found.unknown_ms) == (1000 * J, 10_000 * J, 100_000)


def test_the_time_of_a_silent_node_is_unknown_before_it_returns() -> None:
    others: list[Timed] = [(at, power("n2", 100)) for at in range(0, 700, 50)]
    before = report((0, power("n1", 100)), *others)
    after = report((0, power("n1", 100)), *others, (700, power("n1", 100)))

    assert 0 < before.unknown_ms < 700_000
    assert (before.unknown_uj, after.unknown_uj) == (0, 70_000 * J)
    assert after.unknown_ms == 700_000


def test_readings_of_a_model_are_marked() -> None:
    def guess(watts: int) -> TelemetrySampled:
        return TelemetrySampled(node="n1", power_mw=watts * 1000, source="utilization")

    found = report((0, guess(100)), (10, guess(100)), (20, power("n1", 100)), (30, power("n1", 1)))

    assert found.modelled_uj == 2000 * J  # as a window rests on both of its readings


def test_energy_belongs_to_the_plan_that_last_changed_the_node() -> None:
    hours = folded(
        (0, power("n1", 100)),
        (10, power("n1", 100)),
        (10, CapsSet(plan="p-1", node="n1", cpu_cap_pct=50)),
        (20, power("n1", 50)),
    )[-1:]

    shares = report_of(hours, "plan").by

    assert {name: share.energy_uj for name, share in shares.items()} == {
        "(none)": 1000 * J,
        "p-1": 750 * J,
    }


def test_the_power_of_a_sleeping_node_does_not_lower_its_idle_power() -> None:
    found = report(
        (0, power("n1", 100)),
        (1, bound("a", "n1")),
        (2, SleepOrdered(plan="p", node="n1")),
        (10, power("n1", 5)),
        (20, power("n1", 200)),
        (21, power("n1", 200)),
    )

    assert found.pods_uj == (200 - 100) * J + max(0, 1025 - 1000) * J


def woken(*after: Timed, readings: int = 15) -> list[Timed]:
    """A node that draws 100 W idle is put to sleep, woken, and then ready at 60 s."""
    return [
        (0, usable("n1", ready=True)),
        (0, power("n1", 100)),
        (10, power("n1", 100)),
        (11, usable("n1", ready=False)),
        (11, SleepOrdered(plan="p", node="n1")),
        (20, power("n1", 15)),
        (30, WakeOrdered(plan="q", node="n1")),
        (35, power("n1", readings)),  # it has not started yet
        (55, power("n1", 80)),
        (60, usable("n1", ready=True)),
        *after,
    ]


IN_USE: list[Timed] = [
    (65, power("n1", 100)),
    (66, bound("a", "n1")),
    (70, power("n1", 300)),
    (80, power("n1", 300)),
]


@pytest.mark.parametrize("watts", [15, 80])
def test_the_power_of_a_waking_node_does_not_lower_its_idle_power(watts: int) -> None:
    pods = pods_of(*woken(*IN_USE, readings=watts))

    # Of the window in which it was bound 4 s of 5; then 10 s at 200 W above idle.
    assert pods["a"].pods_uj == (200 * 5 // 2 + 200 * 10) * J


def test_a_reading_from_before_a_node_was_ready_that_is_folded_after_it_is_not_idle_power() -> None:
    late: Timed = (59, power("n1", 15))

    assert pods_of(*woken(late, *IN_USE)) == pods_of(*woken((59, power("n1", 999)), *IN_USE))


def test_a_node_that_is_woken_before_it_fell_asleep_is_awake_at_once() -> None:
    pods = pods_of(
        (0, usable("n1", ready=True)),
        (0, power("n1", 300)),
        (1, SleepOrdered(plan="p", node="n1")),
        (2, WakeOrdered(plan="q", node="n1")),
        (5, power("n1", 100)),
        (6, bound("a", "n1")),
        (10, power("n1", 100)),
        (20, power("n1", 300)),
    )

    assert pods["a"].pods_uj == 1000 * J


def test_a_node_that_is_created_again_is_not_asleep_for_ever() -> None:
    pods = pods_of(
        (0, usable("n1", ready=False)),
        (0, bound("b", "n1")),
        (1, SleepOrdered(plan="p", node="n1")),
        (2, NodeGone(node="n1")),
        (3, usable("n1", ready=True)),
        (10, power("n1", 100)),
        (20, power("n1", 300)),
    )

    assert pods["b"].pods_uj == 1000 * J


def test_the_power_of_the_cards_of_a_waking_node_does_not_lower_their_idle_power() -> None:
    def card(at: float, watts: int) -> Timed:
        return at, reading("n1", (600 + 2 * max(0, watts - 70)) * 1000, {"g": watts * 1000})

    def own(first: int) -> int:
        ledger = folded(
            (0, usable("n1", ready=False)),
            (0, SleepOrdered(plan="p", node="n1")),
            (1, WakeOrdered(plan="q", node="n1")),
            card(2, first),
            (3, usable("n1", ready=True)),
            card(5, 70),
            (5, PodBound(pod=ask("a", gpus=1), node="n1")),
            card(15, 470),
            card(25, 470),
        )
        return sum(row.pods_uj for each in ledger for row in each.cards)

    assert own(5) == own(70)


def test_a_ledger_is_complete_up_to_its_newest_reading() -> None:
    ledger = Ledger()
    ledger.fold([(power("n1", 1), NOON + 10**9), (NodeGone(node="n1"), NOON + 10**10)])

    assert ledger.newest_ms == NOON // 10**6 + 1000


def test_a_node_that_is_gone_has_no_energy_until_its_next_reading() -> None:
    found = report(
        (0, power("n1", 100)),
        (10, power("n1", 100)),
        (11, NodeGone(node="n1")),
        (20, power("n1", 100)),
        (30, power("n1", 100)),
    )

    assert (found.meter_uj, found.unknown_uj) == (2000 * J, 0)


def test_minutes_and_hours_have_the_same_sums() -> None:
    intervals = folded(*[(10 * n, power(f"n{n % 3}", 100 + n % 7)) for n in range(2000)])

    minutes, hours = (
        report_of([each for each in intervals if each.grain == grain], "node")
        for grain in ("minutes", "hour")
    )

    assert minutes.by == hours.by
    # 20,000 s, from the 47th minute of an hour on
    assert len([each for each in intervals if each.grain == "hour"]) == 7


# --- laws -----------------------------------------------------------------------------------------


def histories() -> st.SearchStrategy[list[Record]]:
    return histories_of(FACTS, STEPS_S)


@settings(deadline=None)  # a busy machine
@given(histories(), st.lists(st.integers(0, 60), max_size=5))
def test_a_fold_gives_the_same_bytes_wherever_it_is_cut(
    history: list[Record], cuts: list[int]
) -> None:
    whole = ledger_of(history)

    assert ledger_of(history) == whole
    assert ledger_of(history, [min(cut, len(history)) for cut in cuts]) == whole


@settings(deadline=None)  # a busy machine
@given(histories())
def test_pods_and_idle_energy_are_what_the_meters_measured(history: list[Record]) -> None:
    state = LedgerState()
    state.fold(history, ())
    state.ledger.end()
    hours = [each for each in state.take_closed() if each.grain == "hour"]
    found = report_of(hours, "pod")

    expected = metered_uj(history)

    assert found.meter_uj == pytest.approx(expected, rel=0.01, abs=len(history))
    own = sum(share.pods_uj for share in found.by.values())
    idle = sum(share.idle_uj for share in found.by.values())
    assert (own, idle) == (found.pods_uj, found.idle_uj)
    assert all(share.pods_uj >= 0 and share.idle_uj >= 0 for share in found.by.values())


def metered_uj(history: Sequence[Record]) -> float:
    """The trapezoids of each node, computed apart from the ledger."""
    last, total = dict[str, tuple[int, int]](), 0.0
    for fact, at in accepted(Draft(ClusterState()), history, 0, ()):
        if isinstance(fact, NodeGone):
            last.pop(fact.node, None)
        if not isinstance(fact, TelemetrySampled):
            continue
        at_ms, before = at // 1_000_000, last.get(fact.node)
        if before is not None and 0 < at_ms - before[0] <= GAP_MS:
            total += (before[1] + fact.power_mw) / 2 * (at_ms - before[0])
        last[fact.node] = (max(at_ms, before[0] if before else at_ms), fact.power_mw)
    return total
