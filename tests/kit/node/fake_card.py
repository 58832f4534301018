"""A card in memory whose power limit can be set."""

from collections.abc import Callable

from joulie_agent.caps.actuators import NotSet
from joulie_agent.caps.rules import Limit

LOW, HIGH = 200_000, 700_000


class FakeCard:
    """A card in memory. `fuse` ends the process before one of the next effects."""

    kind = "gpu"

    def __init__(self, card: str = "GPU-1") -> None:
        self.card, self.name = card, f"nvml/{card}"
        self.now = HIGH
        self.refuses = False
        self.writes = 0
        self.effect: Callable[[], None] = lambda: None

    def read(self) -> Limit:
        return Limit(self.now, LOW, HIGH, HIGH)

    def value_of(self, ordered: int) -> int:
        return ordered

    def problem(self) -> str:
        return ""

    def set(self, value: int) -> None:
        self.effect()
        if self.refuses:
            raise NotSet("no")
        assert LOW <= value <= HIGH
        self.now = value
        self.writes += 1
        self.effect()
