"""Energy counters that wrap around and restart."""

from typing import NamedTuple

# No processor package or board draws more. A counter that could have wrapped twice at this power
# since it was last read says nothing about the time between.
MOST_W = 5_000
# A rise beyond this power is none: the counter has jumped.
MOST_RISE_W = 1_000_000


class Count(NamedTuple):
    """A counter's value in microjoules at a time."""

    at_s: float
    value_uj: int


def advanced_uj(before: Count, after: Count, wraps_at_uj: int) -> int | None:
    """The energy between two readings; None if it cannot be known.

    A value below the former one has wrapped, if the counter's range is known. Without a range the
    counter has restarted, and the energy before the restart is unknown.
    """
    passed_s = after.at_s - before.at_s
    if passed_s <= 0:
        return None
    risen = after.value_uj - before.value_uj
    if wraps_at_uj:
        if passed_s * MOST_W * 1e6 >= wraps_at_uj and passed_s > 60:
            return None
        risen = risen if risen >= 0 else risen + wraps_at_uj
    return risen if 0 <= risen <= passed_s * MOST_RISE_W * 1e6 else None


def mean_mw(energy_uj: int, passed_s: float) -> int:
    return round(energy_uj / passed_s / 1000)
