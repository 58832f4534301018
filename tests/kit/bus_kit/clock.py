"""A virtual clock, which only tests advance."""

NOON = 1_900_000_000_000_000_000  # a fixed time, in ns
SECOND = 1_000_000_000


class VirtualClock:
    """Shows the same time until a test calls `advance`."""

    def __init__(self, now: int = NOON) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


def noon(plus_s: float = 0.0) -> int:
    return NOON + int(plus_s * SECOND)
