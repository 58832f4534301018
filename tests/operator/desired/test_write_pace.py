from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from joulie_operator.desired.write_pace import (
    DECREASE,
    FIRST_RATE,
    INCREASE,
    INTERVAL_S,
    LOWEST_RATE,
    QUICK_S,
    SLOW_RATE,
    SLOWDOWN,
    WritePace,
)

latencies = st.floats(0.0005, 20.0)
rates = st.floats(0.1, 10_000.0)


def after(pace: WritePace, writes: Sequence[float | None], *, now_s: float = 0.0) -> list[float]:
    """The rate after each write: None for one that was refused. A tenth of a second apart."""
    found = []
    for number, latency in enumerate(writes):
        at = now_s + number * INTERVAL_S / 5
        if latency is None:
            pace.refused(at)
        else:
            pace.written(latency, at)
        found.append(pace.rate)
    return found


@given(rates, st.lists(st.none() | latencies))
def test_the_rate_stays_within_its_bounds(most: float, writes: list[float | None]) -> None:
    for rate in after(WritePace(most), writes):
        assert min(LOWEST_RATE, most) <= rate <= most


@given(rates, latencies)
def test_with_a_constant_latency_the_rate_grows_to_its_bound(most: float, latency: float) -> None:
    intervals = int(most / INCREASE) + 2
    found = after(WritePace(most), [latency] * 6 * intervals)

    assert found == sorted(found)
    assert found[-1] == most


@given(st.floats(0.001, 0.05), st.floats(1.1, 100.0))
def test_a_rising_latency_lowers_the_rate(usual: float, factor: float) -> None:
    pace = WritePace(1000)
    before = after(pace, [usual] * 30)[-1]
    slow = max(QUICK_S, SLOWDOWN * usual) * factor
    found = after(pace, [slow] * 30, now_s=100)

    assert found[-1] <= max(SLOW_RATE, before * DECREASE)


@given(st.lists(latencies))
def test_latency_alone_never_lowers_the_rate_below_a_hundred(writes: list[float]) -> None:
    assert all(rate >= SLOW_RATE for rate in after(WritePace(1000), writes))


def test_repeated_refusals_lower_the_rate_to_one() -> None:
    assert after(WritePace(1000), [None] * 60)[-1] == LOWEST_RATE


@given(st.floats(0.001, 0.05), st.floats(0.1, 1.0))
def test_latencies_below_the_limit_never_lower_the_rate(usual: float, share: float) -> None:
    pace = WritePace(1000)
    found = after(pace, [usual] * 6 + [max(usual, SLOWDOWN * usual * share)] * 30)

    assert found == sorted(found)


@given(st.integers(1, 50))
def test_refusals_within_an_interval_halve_the_rate_once(refusals: int) -> None:
    pace = WritePace(1000)
    for _ in range(refusals):
        pace.refused(7.0)

    assert pace.rate == FIRST_RATE / 2


@given(st.lists(st.none() | latencies, max_size=60))
def test_the_rate_recovers_when_the_server_answers_quickly_again(
    writes: list[float | None],
) -> None:
    pace = WritePace(200)
    after(pace, writes)
    found = after(pace, [0.001] * 100, now_s=1000)

    assert found[-1] == 200


@given(st.lists(latencies, min_size=1, max_size=4))
def test_the_rate_changes_only_at_the_end_of_an_interval(writes: list[float]) -> None:
    assert set(after(WritePace(1000), writes)) == {FIRST_RATE}
