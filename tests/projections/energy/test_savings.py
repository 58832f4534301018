"""What was saved in a period, by the newest report."""

import pytest

from joulie_projections.energy.savings import Period, Saved, SavedRange, Savings, saved_in

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
