"""How long events gather between two small commits.

A commit of one event costs nearly as much as one of ten, in the projector and in each of its
readers: extender, operator, console and ledger. While events keep arriving one by one, each commit
therefore waits for some more of them.
"""

ENOUGH = 24  # events: a larger commit costs little less per event
LONGEST_S = 0.04  # of the delay that gathering adds until readers see an event
SHORTEST_S = 0.005  # events that arrive faster fill the commits by themselves
INTERVAL_S = 0.25  # over which the rate of events is measured


class CommitPace:
    """Measures the rate of events, and derives the wait after a commit from it."""

    def __init__(self) -> None:
        self._rate = 0.0  # events per second in the last interval
        self._events = 0  # in this interval
        self._began_s = 0.0

    def gather_s(self, events: int, now_s: float) -> float:
        """The time in which ENOUGH more events arrive, at most LONGEST_S, after a commit."""
        self._events += events
        lasted_s = now_s - self._began_s
        if lasted_s >= INTERVAL_S:
            self._rate = self._events / lasted_s
            self._events, self._began_s = 0, now_s
        if self._rate * LONGEST_S <= ENOUGH:
            return LONGEST_S
        expected_s = ENOUGH / self._rate
        return expected_s if expected_s >= SHORTEST_S else 0.0
