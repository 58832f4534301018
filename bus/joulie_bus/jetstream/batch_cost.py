"""Is a message that comes alone dear to this broker? Pure.

A broker that syncs its disk for every message takes a millisecond for each, and a batch, which it
stages in a directory of its own first, costs it about as much as twenty. One that syncs now and
then takes a message in some microseconds, and the staging is all that a batch brings.
"""

DEAR_S = 0.0001  # each; a sync is more than that, handing a message over far less
AGAIN_S = 60.0  # brokers are configured anew, and disks have neighbours


class Prices:
    """By the newest look, each kind of message for itself: streams may differ."""

    def __init__(self, dear_s: float = DEAR_S) -> None:
        self._dear_s = dear_s
        self._dear: dict[str, bool] = {}
        self._again: dict[str, float] = {}

    def are_unknown(self, kind: str, now: float) -> bool:
        return self._again.get(kind, 0.0) <= now

    def saw(self, kind: str, seconds_each: float, now: float) -> None:
        self._dear[kind] = seconds_each > self._dear_s
        self._again[kind] = now + AGAIN_S

    def batches_failed(self, kind: str, now: float) -> None:
        """The stream may not take any: what a message costs does not matter there."""
        self._dear[kind] = False
        self._again[kind] = now + AGAIN_S

    def are_dear(self, kind: str) -> bool:
        return self._dear.get(kind, True)
