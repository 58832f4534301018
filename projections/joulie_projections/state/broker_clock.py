"""The clock of the broker, as known to a component that has its times only by messages.

Facts have the broker's time, so their ages need the broker's clock: the wall clocks of two machines
may differ by seconds.
"""

from collections import deque

NOTES = 20  # of five seconds
STEP_NS = 20_000_000  # smaller differences are delays of messages


class BrokerClock:
    """Times of the broker, each noted with the moment at which it was read.

    A time that was on its way for long is too early, and never too late, so the latest one counts.
    Moments are seconds of a clock that is never set.
    """

    def __init__(self) -> None:
        self._offsets: deque[int] = deque(maxlen=NOTES)
        self._offset = 0

    def note(self, broker_ns: int, moment: float) -> None:
        self._offsets.append(broker_ns - int(moment * 1e9))
        latest = max(self._offsets)
        if len(self._offsets) == 1 or abs(latest - self._offset) > STEP_NS:
            self._offset = latest

    def at(self, moment: float, otherwise: int) -> int:
        """In ns since 1970; `otherwise` before the first note."""
        return self._offset + int(moment * 1e9) if self._offsets else otherwise
