"""The rate of writes to the API server: additive increase, multiplicative decrease.

Each interval is judged by the median latency of its writes. The latency of an idle server differs
by a factor of ten between clusters, so that it is compared with the shortest that was measured.
"""

import math
from statistics import median

INTERVAL_S = 0.5  # between two changes of the rate
FIRST_RATE = 300.0  # writes per second at the start
LOWEST_RATE = 1.0
INCREASE = 25.0  # writes per second, in each interval without a sign of load
DECREASE = 0.7  # after an interval of slow writes
REFUSED_DECREASE = 0.5  # after a write that the server refused with 429
SLOWDOWN = 3.0  # slow: this many times the shortest latency
QUICK_S = 0.05  # never slow: load of other clients causes such latencies, too
# Writes per second that no latency lowers, because other programs may be the cause; 429 does.
SLOW_RATE = 100.0
FORGETS = 1.01  # per interval, so that the shortest latency follows a server that changes


class WritePace:
    """The current rate, at most `most` writes per second."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._lowest = min(LOWEST_RATE, most)
        self._latencies: list[float] = []
        self._shortest_s = math.inf
        self._ends_s = -math.inf  # of the interval
        self._halved_s = -math.inf
        self.rate = min(FIRST_RATE, most)

    def written(self, latency_s: float, now_s: float) -> None:
        """Records a write that the server answered."""
        if not self._latencies:
            self._ends_s = now_s + INTERVAL_S
        self._latencies.append(latency_s)
        if now_s >= self._ends_s:
            self._change_rate(median(self._latencies))
            self._latencies = []

    def refused(self, now_s: float) -> None:
        """Records a write without an answer in time, or with 429. Halves once per interval."""
        self._latencies = []
        if now_s >= self._halved_s + INTERVAL_S:
            self._halved_s = now_s
            self._set_rate(self.rate * REFUSED_DECREASE)

    def _change_rate(self, latency_s: float) -> None:
        self._shortest_s = min(latency_s, self._shortest_s * FORGETS)
        is_slow = latency_s > max(QUICK_S, SLOWDOWN * self._shortest_s)
        if is_slow:
            self._set_rate(max(min(SLOW_RATE, self.rate), self.rate * DECREASE))
        else:
            self._set_rate(self.rate + INCREASE)

    def _set_rate(self, rate: float) -> None:
        self.rate = min(self._most, max(self._lowest, rate))
