"""The requests that are expected within the next minutes, from the history in the state.

Each window of five minutes ahead is expected to bring what a share of the same windows of earlier
weeks did not exceed. With less than a week of history, the same hour of the other days stands in.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from joulie_operator.planning.policies import exact_fraction
from joulie_projections.state.arrivals import (
    HOURS,
    ArrivalHistory,
    at_quantile,
    closed_before,
    hour_of,
    window_of,
)
from joulie_projections.state.state import ClusterState

WINDOW_S = 300
LEAST_WINDOWS = (
    12  # one hour of history, of this hour of the week or of the same hour of other days
)
_DAY = 24
_WEEK_WINDOWS = HOURS * 12


class Forecast(NamedTuple):
    """The expected requests: of pods without cards, and of pods with cards."""

    cpu_milli: int
    gpu_milli: int


def forecast(
    cluster_state: ClusterState, now: int, ahead_s: float, quantile: float
) -> Forecast | None:
    """None while the history is too short."""
    first, per_million = window_of(now), int(exact_fraction(quantile) * 1_000_000)
    since = _first_window(cluster_state)
    total = Forecast(0, 0)
    for window in range(first, first + max(1, -(-int(ahead_s) // WINDOW_S))):
        cpu, gpu = _counts(cluster_state, window)
        if sum(cpu.values()) < LEAST_WINDOWS:
            if since is None or window - since < _WEEK_WINDOWS:
                return None
            continue  # nothing has ever arrived in this hour
        total = Forecast(
            total.cpu_milli + at_quantile(cpu, per_million),
            total.gpu_milli + at_quantile(gpu, per_million),
        )
    return total


def _first_window(cluster_state: ClusterState) -> int | None:
    rows = map(cluster_state.arrivals, range(HOURS))
    return min((row.since for row in rows if row is not None), default=None)


def _counts(cluster_state: ClusterState, window: int) -> tuple[Counter[str], Counter[str]]:
    hour = hour_of(window)
    exact = _closed(cluster_state, [hour], window)
    if sum(exact[0].values()) >= LEAST_WINDOWS:
        return exact
    return _closed(cluster_state, range(hour % _DAY, HOURS, _DAY), window)


def _closed(
    cluster_state: ClusterState, hours: Iterable[int], window: int
) -> tuple[Counter[str], Counter[str]]:
    cpu, gpu = Counter[str](), Counter[str]()
    for hour in hours:
        row = cluster_state.arrivals(hour)
        if row is not None:
            closed = _before(row, hour, window)
            cpu.update(closed.cpu_windows)
            gpu.update(closed.gpu_windows)
    return cpu, gpu


def _before(row: ArrivalHistory, hour: int, window: int) -> ArrivalHistory:
    """The history up to this window, which may belong to another hour."""
    hours_ago = (hour_of(window) - hour) % HOURS
    last_of_hour = (window // 12 - hours_ago) * 12 + 11
    return closed_before(row, last_of_hour if hours_ago else window)
