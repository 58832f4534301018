"""Finds gaps in the sequence numbers that every replica gives to its entries.

A gap is a drop: a replica that cannot write to its spool still answers, counts what it dropped and
continues with the next number. Gaps are reported and are no sign of tampering: removing an entry
from the log breaks its chain.
"""

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import NamedTuple


class Gap(NamedTuple):
    life: str  # producer:boot
    first: int
    last: int

    def ids(self) -> Iterator[str]:
        return (f"{self.life}:{number}" for number in range(self.first, self.last + 1))

    def __str__(self) -> str:
        count = self.last - self.first + 1
        numbers = f"number {self.first}" if count == 1 else f"numbers {self.first} to {self.last}"
        return f"{numbers} of {self.life} are missing: {count} dropped before they were logged"


class NumberRange(NamedTuple):
    """Consecutive numbers."""

    first: int
    last: int


class SequenceNumbers:
    """The numbers seen of each producer and boot, as ranges in log order.

    `from_one`: the log is read from its start, so numbers before the first one are a gap too.
    """

    def __init__(self, *, from_one: bool) -> None:
        self._first: dict[bytes, int] = {}  # of the open range
        self._high: dict[bytes, int] = {}  # and its last number
        self._closed: dict[bytes, list[NumberRange]] = {}
        self._from_one = from_one

    def add(self, event_ids: Iterable[bytes]) -> None:
        """Adds ids in log order."""
        high = self._high
        for life, _, number in map(bytes.rpartition, event_ids, repeat(b":")):
            try:
                seq = int(number)
            except ValueError:
                continue
            if high.get(life) == seq - 1:  # the common case
                high[life] = seq
            elif b":" in life:  # else an unreadable entry, which has no number
                self._start_range(life, NumberRange(seq, seq))

    def extend(self, later: "SequenceNumbers") -> None:
        """Adds the numbers of the part of the log that follows this one."""
        for life, first in later._first.items():
            for numbers in (*later._closed.get(life, ()), NumberRange(first, later._high[life])):
                self._start_range(life, numbers)

    def gaps(self) -> list[Gap]:
        return [gap for life in sorted(self._first) for gap in self._gaps_of(life)]

    def _start_range(self, life: bytes, numbers: NumberRange) -> None:
        if life in self._first:
            before = NumberRange(self._first[life], self._high[life])
            self._closed.setdefault(life, []).append(before)
        self._first[life], self._high[life] = numbers

    def _gaps_of(self, life: bytes) -> Iterator[Gap]:
        ranges = [*self._closed.get(life, ()), NumberRange(self._first[life], self._high[life])]
        return _gaps_between(
            life.decode(errors="replace"), ranges, 0 if self._from_one else ranges[0].first - 1
        )


def _gaps_between(life: str, ranges: Iterable[NumberRange], reached: int) -> Iterator[Gap]:
    for first, last in sorted(ranges):
        if first > reached + 1:
            yield Gap(life, reached + 1, first - 1)
        reached = max(reached, last)
