"""What was saved in a period, by the newest report."""

from typing import Any

import msgspec
import pytest

from joulie_projections.energy.savings import (
    NO_PLANS,
    Period,
    Saved,
    SavedRange,
    Savings,
    saved_in,
    saved_on,
    savings_of,
)

HOUR = 3_600_000
TODAY = Period(HOUR, 3 * HOUR, kwh=8.0, cost=2.0, kgco2e=None)


def report(*shares: float, from_ms: int = 0, to_ms: int = 2 * HOUR) -> Savings:
    share = SavedRange(*shares)
    return Savings(
        computed_ms=1,
        position=7,
        from_ms=from_ms,
        to_ms=to_ms,
        baseline="kube-default",
        policy="joulie-energy",
        pods=5,
        nodes=2,
        saved=Saved(kwh=SavedRange(9.0, 9.0, 9.0), share=share, share_per_work=share),
    )


def values(found: SavedRange | None) -> tuple[float, ...]:
    assert found is not None
    return found.low, found.mid, found.high


def test_the_metered_energy_is_what_is_left_of_the_baseline() -> None:
    found = saved_in(TODAY, report(0.0, 0.2, 0.5))

    assert values(found.kwh) == pytest.approx((0, 2, 8))
    assert values(found.cost) == pytest.approx((0, 0.5, 2))
    assert found.kgco2e is None  # nothing has an intensity


def test_more_than_the_baseline_is_a_negative_saving() -> None:
    found = saved_in(TODAY, report(-1.0, -0.6, 0.0))

    assert values(found.kwh) == pytest.approx((-4, -3, 0))


@pytest.mark.parametrize(
    ("newest", "why"),
    [
        (None, "no report was written yet"),
        (report(0.1, 0.2, 0.3, from_ms=3 * HOUR, to_ms=4 * HOUR), "is of another time"),
        (report(0.1, 0.2, 0.3, to_ms=HOUR), "is of another time"),
        (report(0.1, 0.2, 1.0), "compares with no energy at all"),
    ],
)
def test_without_a_report_of_the_period_nothing_is_known_to_be_saved(
    newest: Savings | None, why: str
) -> None:
    found = saved_in(TODAY, newest)

    assert (found.kwh, found.cost) == (None, None)
    assert why in found.why


DAY = 24 * HOUR
FIRST, SECOND, THIRD = (Period(DAY * day, DAY * (day + 1), 8.0, 2.0, None) for day in (1, 2, 3))


def test_each_day_is_compared_by_the_report_of_that_day() -> None:
    by_day = {DAY: report(0.2, 0.2, 0.2, from_ms=DAY, to_ms=2 * DAY)}
    by_day[2 * DAY] = report(-1.0, -1.0, 0.5, from_ms=2 * DAY, to_ms=3 * DAY)

    found = saved_on([FIRST, SECOND], by_day, None)

    assert values(found.kwh) == pytest.approx((2 - 4, 2 - 4, 2 + 8))
    assert values(found.cost) == pytest.approx((0.5 - 1, 0.5 - 1, 0.5 + 2))
    assert found.uncompared_kwh == 0


def test_energy_of_days_without_a_report_is_in_no_saving() -> None:
    newest = report(0.2, 0.2, 0.2, from_ms=2 * DAY, to_ms=3 * DAY)

    found = saved_on([FIRST, SECOND, THIRD], {}, newest)

    assert values(found.kwh) == pytest.approx((2, 2, 2))
    assert found.uncompared_kwh == 16
    assert saved_on([FIRST], {}, newest).kwh is None
    assert saved_on([FIRST], {}, newest).uncompared_kwh == 8


def test_a_report_of_one_day_is_that_of_the_day() -> None:
    def day_of(from_ms: int, to_ms: int, complete_to_ms: int) -> int | None:
        found = report(0.1, 0.2, 0.3)
        times = {"asked_from_ms": from_ms, "asked_to_ms": to_ms, "complete_to_ms": complete_to_ms}
        return msgspec.structs.replace(found, **times).day_ms

    assert day_of(DAY, 2 * DAY, DAY + HOUR) == DAY
    assert day_of(DAY, DAY + 2 * HOUR, DAY + HOUR) == DAY  # it holds all that is known
    assert day_of(DAY, DAY + HOUR, DAY + 2 * HOUR) is None  # later energy is left out
    assert day_of(DAY + 1, 2 * DAY, DAY + HOUR) is None
    assert day_of(DAY, 3 * DAY, 3 * DAY) is None
    assert day_of(0, 2 * DAY, DAY) is None  # the whole log


def test_a_report_that_simulates_plans_saved_nothing() -> None:
    saved = {name: {"low": 0.1, "mid": 0.2, "high": 0.3} for name in RANGES}
    of_log: dict[str, Any] = {
        "position": 7,
        "asked": {"from": 0, "to": 2},
        "complete_to": 2,
        "counterfactual": {
            **{"baseline": "kube-default", "policy": "joulie", "pods": 1, "nodes": 1},
            **{"from": 0, "to": 2, "saved": saved, "as_it_ran": True},
        },
    }
    of_shadow = {**of_log, "counterfactual": {**of_log["counterfactual"], "as_it_ran": False}}

    assert savings_of(of_log, 0, 0.0).saved is not None
    assert savings_of(of_shadow, 0, 0.0).saved is None
    assert saved_in(Period(0, 1, 10.0, None, None), savings_of(of_shadow, 0, 0.0)).why == NO_PLANS


RANGES = ("kwh", "share", "share_per_work")
