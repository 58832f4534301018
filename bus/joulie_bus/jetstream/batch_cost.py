"""Whether a single message is expensive for this broker.

A broker that syncs its disk for every message takes a millisecond for each; a batch, which it first
stages in a directory, costs about as much as twenty. A broker that syncs rarely takes some
microseconds for a message, so that a batch costs only the staging.
"""

EXPENSIVE_S = 0.0001  # per message; a sync takes longer, storing without one far less
AGAIN_S = 60.0  # the configuration of the broker and the load of its disk change


class Prices:
    """The newest measurement per kind of message, as streams may differ."""

    def __init__(self, expensive_s: float = EXPENSIVE_S) -> None:
        self._expensive_s = expensive_s
        self._expensive: dict[str, bool] = {}
        self._again: dict[str, float] = {}

    def are_unknown(self, kind: str, now: float) -> bool:
        return self._again.get(kind, 0.0) <= now

    def observe(self, kind: str, seconds_each: float, now: float) -> None:
        self._expensive[kind] = seconds_each > self._expensive_s
        self._again[kind] = now + AGAIN_S

    def batches_failed(self, kind: str, now: float) -> None:
        """Sends this kind singly for a while: the stream may not accept batches."""
        self._expensive[kind] = False
        self._again[kind] = now + AGAIN_S

    def single_is_expensive(self, kind: str) -> bool:
        return self._expensive.get(kind, True)
