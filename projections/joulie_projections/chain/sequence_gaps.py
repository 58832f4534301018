"""Finds gaps and breaks in the numbers and hashes that every replica gives to its entries.

A replica that cannot write to its spool still answers, counts what it dropped and continues with
the next number: its next message has the hash of the last one before the gap. A message with the
hash of one that the log lacks was published by its replica, and is missing.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from joulie_projections.chain.promise import NO_HASH, hash_of, prev_in


class GapKind(StrEnum):
    DROPPED = "dropped before they were logged"
    LOST = "their replica lost them after it had promised them, and says so"
    MISSING = "their replica promised them"


class Gap(NamedTuple):
    life: str  # producer:boot
    first: int
    last: int
    kind: GapKind = GapKind.DROPPED

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def ids(self) -> Iterator[str]:
        return (f"{self.life}:{number}" for number in range(self.first, self.last + 1))

    def __str__(self) -> str:
        first, last = self.first, self.last
        numbers = f"number {first}" if first == last else f"numbers {first} to {last}"
        count = f"{self.size} " if self.kind is GapKind.DROPPED else ""
        return f"{numbers} of {self.life} are missing: {count}{self.kind}"


class Break(NamedTuple):
    """A number that does not have the hash of the number before it, which the log has."""

    life: str
    number: int


class NumberRange(NamedTuple):
    """Consecutive numbers, each with the hash of the one before it."""

    first: int
    last: int
    prev: bytes = NO_HASH  # in the message of the first
    hash: bytes = NO_HASH  # of the message of the last


class _Open:
    """The range that grows."""

    __slots__ = ("first", "last", "message", "prev")

    def __init__(self, first: int, message: bytes) -> None:
        self.first = self.last = first
        self.prev = prev_in(message)
        self.message = message  # of the last

    def continues(self, number: int, message: bytes) -> bool:
        if self.last != number - 1:
            return False
        prev = prev_in(message)
        return not prev or prev == hash_of(self.message)

    @property
    def range(self) -> NumberRange:
        return NumberRange(self.first, self.last, self.prev, hash_of(self.message))


class SequenceNumbers:
    """The numbers seen of each producer and boot, as ranges in log order.

    `from_one`: the log is read from its start, so numbers before the first one are a gap too.
    """

    def __init__(self, *, from_one: bool) -> None:
        self._open: dict[bytes, _Open] = {}
        self._closed: dict[bytes, list[NumberRange]] = {}
        self._odd: dict[bytes, bytes] = {}  # messages of no life, by their hash: `prev` in them
        self._from_one = from_one

    def add(self, event_ids: Iterable[bytes], messages: Iterable[bytes]) -> None:
        """Adds entries in log order."""
        growing = self._open
        for event_id, message in zip(event_ids, messages, strict=True):
            life, _, number = event_id.rpartition(b":")
            try:
                seq = int(number)
            except ValueError:
                continue
            if b":" not in life:  # an unreadable entry
                self._add_odd(message)
                continue
            ours = growing.get(life)
            if ours is not None and ours.continues(seq, message):
                ours.last, ours.message = seq, message
            else:
                self._begin(life, seq, message)

    def extend(self, later: "SequenceNumbers") -> None:
        """Adds the numbers of the part of the log that follows this one."""
        for life, found in later._open.items():
            if life in self._open:
                self._closed.setdefault(life, []).append(self._open[life].range)
            self._closed.setdefault(life, []).extend(later._closed.get(life, ()))
            self._open[life] = found
        self._odd |= later._odd

    def gaps(self) -> list[Gap]:
        return [gap for life in sorted(self._open) for gap in self._gaps_of(life)]

    def breaks(self) -> list[Break]:
        return [
            Break(_text(life), after.first)
            for life in sorted(self._open)
            for before, after in _pairs(self._ranges_of(life))
            if after.first == before.last + 1 and after.prev not in (NO_HASH, before.hash)
        ]

    def end_of(self, life: str) -> int:
        """The last number of a life; 0 if the log has none."""
        return max((each.last for each in self._ranges_of(life.encode())), default=0)

    def _begin(self, life: bytes, seq: int, message: bytes) -> None:
        if (before := self._open.get(life)) is not None:
            self._closed.setdefault(life, []).append(before.range)
        self._open[life] = _Open(seq, message)

    def _add_odd(self, message: bytes) -> None:
        """A message that this version cannot read, or that its sender may not write."""
        if prev := prev_in(message):
            self._odd[hash_of(message)] = prev

    def _ranges_of(self, life: bytes) -> list[NumberRange]:
        if life not in self._open:
            return []
        return sorted([*self._closed.get(life, ()), self._open[life].range])

    def _gaps_of(self, life: bytes) -> Iterator[Gap]:
        first = [*self._closed.get(life, ()), self._open[life].range][0].first  # in log order
        start = NumberRange(0, 0 if self._from_one else first - 1)
        for before, after in _pairs([start, *self._ranges_of(life)]):
            if after.first > before.last + 1:
                kind = self._kind_of(before, after)
                yield Gap(_text(life), before.last + 1, after.first - 1, kind)

    def _kind_of(self, before: NumberRange, after: NumberRange) -> GapKind:
        """Messages in the gap that became unreadable entries are not missing."""
        if not (prev := after.prev):
            return GapKind.DROPPED
        for _ in range(after.first - before.last - 1):
            if prev == before.hash:
                break
            prev = self._odd.get(prev, prev)
        return GapKind.DROPPED if prev == before.hash else GapKind.MISSING


def _pairs(ranges: list[NumberRange]) -> Iterator[tuple[NumberRange, NumberRange]]:
    """Each with the next one that goes on behind it: a range may lie within another one."""
    reached: NumberRange | None = None
    for each in ranges:
        if reached is not None:
            yield reached, each
        if reached is None or each.last > reached.last:
            reached = each


def _text(life: bytes) -> str:
    return life.decode(errors="replace")
