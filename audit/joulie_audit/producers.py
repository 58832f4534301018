"""Every replica numbers what it says; a number that never came is a hole. Pure.

Holes are drops: a replica that cannot write its spool answers all the same, counts what it could
not keep, and goes on with the next number. They are told, and are no sign of tampering: taking an
entry out of the log breaks its chain.
"""

from collections.abc import Iterator
from typing import NamedTuple

FEW = 1_000  # holes of one life whose numbers are kept


class Hole(NamedTuple):
    life: str  # producer:boot
    first: int
    last: int

    def ids(self) -> Iterator[str]:
        return (f"{self.life}:{number}" for number in range(self.first, self.last + 1))

    def __str__(self) -> str:
        count = self.last - self.first + 1
        numbers = f"number {self.first}" if count == 1 else f"numbers {self.first} to {self.last}"
        return f"{numbers} of {self.life} never came: {count} dropped before they were logged"


class Counters:
    """`from_one`: whole lives are seen, so what comes before the first number is a hole too."""

    def __init__(self, *, from_one: bool) -> None:
        self._high: dict[str, int] = {}
        self._missing: dict[str, set[int]] = {}
        self._from_one = from_one

    def seen(self, event_id: str) -> None:
        life, _, number = event_id.rpartition(":")
        try:
            seq = int(number)
        except ValueError:
            return
        high = self._high.get(life)
        if high is not None and seq == high + 1:  # nearly always
            self._high[life] = seq
        else:
            self._out_of_turn(life, seq, high)

    def holes(self) -> list[Hole]:
        return [
            hole for life, missing in sorted(self._missing.items()) for hole in _runs(life, missing)
        ]

    def _out_of_turn(self, life: str, seq: int, high: int | None) -> None:
        if ":" not in life:
            return  # an unreadable entry: nobody numbered it
        if high is None:
            high = 0 if self._from_one else seq - 1
        if seq > high:
            skipped = range(high + 1, min(seq, high + 1 + FEW))
            self._missing.setdefault(life, set()).update(skipped)
            self._high[life] = seq
        else:
            self._missing.get(life, set()).discard(seq)


def _runs(life: str, missing: set[int]) -> Iterator[Hole]:
    first = last = -1
    for number in sorted(missing):
        if number != last + 1:
            if first > 0:
                yield Hole(life, first, last)
            first = number
        last = number
    if first > 0:
        yield Hole(life, first, last)
