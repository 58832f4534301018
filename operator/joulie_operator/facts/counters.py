"""The energy of one meter, out of its power and of the counters that an exporter has of it.

Counters are scraped less often than they are read, so that one that has not risen is an old value.
They restart with the exporter or the driver, and are taken for what they are only where they cannot
have restarted unnoticed.
"""

from typing import NamedTuple

from joulie_bus.metering.energy import EnergyMeter
from joulie_operator.facts.readings import Counter

LONGEST_S = 60.0  # polled power fills no longer time, as in the ledger
MOST_UJ_PER_S = 20_000 * 1e6  # no node draws more
_NONE: Counter = {}


class Mark(NamedTuple):
    """A counter, when it was read first."""

    at_s: float
    uj: Counter
    is_fresh: bool  # it has risen to this value since the meter is followed

    def risen_uj(self, now: "Mark") -> int | None:
        """None if it is not known. Had the sensors restarted since, they could not have counted so
        much again."""
        longest_s = now.at_s - self.at_s + LONGEST_S  # the value may be that old
        most_uj = longest_s * MOST_UJ_PER_S
        risen = {sensor: uj - self.uj[sensor] for sensor, uj in now.uj.items()}
        whole_uj = sum(risen.values())
        if min(risen.values()) < 0 or sum(self.uj.values()) < most_uj or whole_uj > most_uj:
            return None
        return round(whole_uj)


class ScrapedMeter:
    """Adds up energy: power fills the time between two values of the counter."""

    def __init__(self) -> None:
        self.energy = EnergyMeter()
        self._mark: Mark | None = None

    def observe(self, at_s: float, power_mw: int, counter: Counter = _NONE) -> bool:
        """Whether the counter has risen, by a known amount, since it was read before."""
        self.energy.saw_power(at_s, power_mw)
        return self._count(at_s, counter)

    def lost(self) -> None:
        """Nothing was read for a time: power does not fill it."""
        self.energy.lost()

    def forget(self) -> None:
        """Its next rise may be of a time before now, and counts for nothing."""
        if self._mark is not None:
            self._mark = self._mark._replace(is_fresh=False)

    def _count(self, at_s: float, counter: Counter) -> bool:
        before = self._mark
        if before is None or not counter or before.uj.keys() != counter.keys():
            self._mark = Mark(at_s, counter, is_fresh=False) if counter else None
            return False
        if counter == before.uj:
            return False
        self._mark = Mark(at_s, counter, is_fresh=True)
        risen_uj = before.risen_uj(self._mark) if before.is_fresh else None
        self.energy.saw_counter(risen_uj)
        return risen_uj is not None
