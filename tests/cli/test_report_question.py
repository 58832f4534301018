"""What was saved is asked with the settings of the log, not with defaults."""

import pytest

from joulie_audit.ledger.pods_in_log import Lives
from joulie_bus.events import PlanMade
from joulie_cli.reporting.gather import Gathered, Period
from joulie_cli.reporting.question import Measured, asked_of
from joulie_operator.planning.rules import Rules, values_of
from joulie_projections.energy.report import Reading
from joulie_projections.energy.saved import LedgerState
from joulie_simulator.energy.counterfactual import LoggedSleep

SECOND_MS = 1000


def plan(at: int, numbers: str, policy: str = "consolidate_and_sleep") -> tuple[PlanMade, int]:
    rules = Rules(policy=policy, policy_numbers=numbers)
    made = PlanMade(
        plan=f"p-{at}",
        policy=policy,
        view=at,
        nodes=1,
        performance=0,
        changes=0,
        settings=values_of(rules),
    )
    return made, at * SECOND_MS


def sleep_of(*plans: tuple[PlanMade, int], to_s: int = 100) -> LoggedSleep:
    lives = Lives()
    for made, at_ms in plans:
        lives.fold(made, at_ms)
    state = LedgerState()
    state.ledger.row_of("n1")
    state.ledger.meters.columns["last_ms"][0] = to_s * SECOND_MS
    period = Period(0, to_s * SECOND_MS)
    got = Gathered(period, 0, Reading([]), state, lives, {}, "energy")
    return asked_of(got, *period, Measured(0)).question.sleep


USUAL = LoggedSleep(0.02, 0.8, 600.0)


@pytest.mark.parametrize(
    ("plans", "expected"),
    [
        ([], LoggedSleep()),
        ([plan(1, "", "static_partition")], LoggedSleep()),
        ([plan(1, "")], USUAL),
        ([plan(1, "reserve=0.2,max_share=0.5,sleep_after_s=60")], LoggedSleep(0.2, 0.5, 60.0)),
        ([plan(1, "reserve=0.2"), plan(2, "reserve=0.4")], USUAL._replace(reserve=0.4)),
        ([plan(1, "reserve=0.2"), plan(200, "reserve=0.4")], USUAL._replace(reserve=0.2)),
    ],
    ids=["no plan", "none sleeps", "its defaults", "its numbers", "the newest", "not a later one"],
)
def test_nodes_sleep_by_the_newest_plan_of_the_period(
    plans: list[tuple[PlanMade, int]], expected: LoggedSleep
) -> None:
    assert sleep_of(*plans) == expected


def test_the_use_of_pods_does_not_shrink_with_gaps_in_the_readings() -> None:
    """A quarter of the time of ten nodes is unknown, and so is the energy of pods then."""
    hour_ms = 3_600_000

    assert Measured(750).of_all_time_uj(10 * hour_ms) == 750
    assert Measured(750, unknown_ms=hour_ms * 10 // 4).of_all_time_uj(10 * hour_ms) == 1000
    assert Measured(750, unknown_ms=11 * hour_ms).of_all_time_uj(10 * hour_ms) == 7500
    assert Measured(0).of_all_time_uj(0) == 0
