"""Quiet hours: nothing but readings until the end of each, where pods come and faults may happen.

The time between two rounds of readings is skipped while all components stand still: see
`virtual_time`.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from virtual_time import POLLS, VirtualLoop

HOUR_S = 3600.0
QUIET_S = 8.0  # the shortest time in which pods arrive
FRESH_AFTER_S = 12.0  # the last fault, everything must be fresh
SAMPLE_S = 3.0
ROUND_S = 50.0  # the energy of a longer time is not known between two readings
JITTER_S = 0.2
LOOK_S = 0.5
LEAD_S = 0.3  # before an event, all polls run again


class Lasting(NamedTuple):
    """Of a fault: when it is there."""

    at: float
    until: float


class Burst(NamedTuple):
    """Pods arrive from `start` to `end`, which is not before the last fault healed."""

    start: float
    end: float

    @property
    def fresh_at(self) -> float:
        return self.end + FRESH_AFTER_S


def bursts(hours: int, faults: Sequence[Lasting]) -> Iterator[Burst]:
    """One at the beginning, and one at the end of each hour."""
    for number in range(hours + 1):
        start, until = number * HOUR_S, (number + 1) * HOUR_S
        healed = [each.until for each in faults if start <= each.at < until]
        yield Burst(start, max([start + QUIET_S, *healed]))


class Pace:
    """How often agents read their meters: rarely, and at the same time, in quiet hours."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.is_quiet = False
        self._loop = loop

    def pause_s(self, rng: random.Random) -> float:
        if not self.is_quiet:
            return rng.uniform(0.8, 1.2) * SAMPLE_S
        return ROUND_S - self._loop.cluster_s() % ROUND_S + rng.uniform(0, JITTER_S)

    async def skip_quiet_time(self, still_at: Callable[[], int | None]) -> None:
        """Between rounds of readings, once all components have stood still since the last look."""
        POLLS.set(True)
        before = None
        while True:
            await asyncio.sleep(LOOK_S)
            here = still_at() if self.is_quiet else None
            if here is not None and here == before:
                self._loop.skip(LEAD_S)
            before = here
