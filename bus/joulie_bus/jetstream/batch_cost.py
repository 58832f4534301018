"""Whether a single message is expensive for this broker.

A broker that syncs its disk for every message takes a millisecond for each; a batch, which it first
stages in a directory, costs about as much as twenty. A broker that syncs rarely takes some
microseconds for a message, so that a batch costs only the staging.
"""

DEAR_S = 0.0001  # per message; a sync takes longer, storing without one far less
AGAIN_S = 60.0  # the configuration of the broker and the load of its disk change


class Prices:
    """The newest measurement per kind of message, as streams may differ."""

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
        """Sends this kind singly for a while: the stream may not accept batches."""
        self._dear[kind] = False
        self._again[kind] = now + AGAIN_S

    def are_dear(self, kind: str) -> bool:
        return self._dear.get(kind, True)
