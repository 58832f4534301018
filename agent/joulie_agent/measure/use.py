"""What pods use, in spells: times in which the use of a pod did not change noticeably.

A spell has exact sums, so that one of ten minutes weighs as much as ten of a minute.
"""

from collections.abc import Mapping
from typing import NamedTuple

from joulie_bus.events import PodUse
from joulie_bus.events.bounds import MOST_BYTES, MOST_CPU_MILLI

MINUTE_S = 60.0
LONGEST_S = 600.0  # of a spell: what is known of a steady pod is no older
CPU_SHARE, LEAST_CPU_MILLI = 0.1, 20  # a change of 10 percent, and of 20 millicores at least
MEMORY_SHARE, LEAST_MIB = 0.05, 16
LEAST_WAIT = 10  # thousandths of the time
Wait = int | None  # in thousandths of the time; None: the kernel does not count it


class Spell(NamedTuple):
    """Memory is None where it cannot be read."""

    seconds: float
    cpu_ns: int
    memory_mib: float | None = None  # the mean
    peak_mib: int | None = None
    waits: tuple[Wait, Wait, Wait] = (None, None, None)  # for processors, memory and I/O

    @property
    def cpu_milli(self) -> float:
        return self.cpu_ns / self.seconds / 1e6


class PodSpells:
    """The running spell of each pod by its uid."""

    def __init__(self) -> None:
        self._running: dict[str, Spell] = {}

    def observe(self, minutes: Mapping[str, Spell]) -> dict[str, Spell]:
        """Takes the last minute of each pod that runs. Returns the spells that have ended."""
        ended = {uid: spell for uid, spell in self._running.items() if uid not in minutes}
        running: dict[str, Spell] = {}
        for uid, minute in minutes.items():
            known = self._running.get(uid)
            if known is None:
                running[uid] = minute
            elif is_alike(known, minute) and known.seconds + minute.seconds <= LONGEST_S:
                running[uid] = joined(known, minute)
            else:
                ended[uid], running[uid] = known, minute
        self._running = running
        return ended


def is_alike(spell: Spell, minute: Spell) -> bool:
    return (
        not _differs(spell.cpu_milli, minute.cpu_milli, CPU_SHARE, LEAST_CPU_MILLI)
        and not _differs(spell.memory_mib, minute.memory_mib, MEMORY_SHARE, LEAST_MIB)
        and not _differs(spell.peak_mib, minute.peak_mib, MEMORY_SHARE, LEAST_MIB)
        and not any(
            _differs(before, after, 0.0, LEAST_WAIT)
            for before, after in zip(spell.waits, minute.waits, strict=True)
        )
    )


def _differs(before: float | None, after: float | None, share: float, least: float) -> bool:
    if before is None or after is None:
        return before is not after
    return abs(after - before) > max(share * before, least)


def joined(first: Spell, then: Spell) -> Spell:
    """Of alike spells, so both know the same."""
    seconds = first.seconds + then.seconds

    def mean(one: float | None, other: float | None) -> float | None:
        if one is None or other is None:
            return None
        return (one * first.seconds + other * then.seconds) / seconds

    cpu, memory, io = (
        None if (found := mean(*both)) is None else round(found)
        for both in zip(first.waits, then.waits, strict=True)
    )
    peaks = [peak for peak in (first.peak_mib, then.peak_mib) if peak is not None]
    return Spell(
        seconds,
        first.cpu_ns + then.cpu_ns,
        mean(first.memory_mib, then.memory_mib),
        max(peaks, default=None),
        (cpu, memory, io),
    )


def line_of(packed: bytes, spell: Spell) -> PodUse:
    memory_mib = None if spell.memory_mib is None else round(spell.memory_mib)
    return PodUse(
        packed,
        max(1, round(spell.seconds)),
        min(round(spell.cpu_milli), MOST_CPU_MILLI),
        _bounded(memory_mib),
        _bounded(spell.peak_mib),
        *spell.waits,
    )


def _bounded(mib: int | None) -> int | None:
    return None if mib is None else min(mib, MOST_BYTES >> 20)
