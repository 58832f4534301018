"""Every replica numbers what it says; a number that never came is a hole. Pure.

Holes are drops: a replica that cannot write its spool answers all the same, counts what it could
not keep, and goes on with the next number. They are told, and are no sign of tampering: taking an
entry out of the log breaks its chain.
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
        return f"{numbers} of {self.life} never came: {count} dropped before they were logged"


class NumberRange(NamedTuple):
    """Numbers that came one after the other."""

    first: int
    last: int


class SequenceNumbers:
    """What came of each life, as runs in the order of the log.

    `from_one`: whole lives are seen, so what comes before the first number is a hole too.
    """

    def __init__(self, *, from_one: bool) -> None:
        self._first: dict[bytes, int] = {}  # of the run that goes on
        self._high: dict[bytes, int] = {}  # and how far it went
        self._closed: dict[bytes, list[NumberRange]] = {}
        self._from_one = from_one

    def add(self, event_ids: Iterable[bytes]) -> None:
        """In the order of the log."""
        high = self._high
        for life, _, number in map(bytes.rpartition, event_ids, repeat(b":")):
            try:
                seq = int(number)
            except ValueError:
                continue
            if high.get(life) == seq - 1:  # nearly always
                high[life] = seq
            elif b":" in life:  # else an unreadable entry: nobody numbered it
                self._start_range(life, NumberRange(seq, seq))

    def extend(self, later: "SequenceNumbers") -> None:
        """With what came in the part of the log behind this one."""
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
