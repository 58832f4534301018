"""A part of the log in columns, as an archive holds it: most of its messages are readings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_bus.errors import Undecodable
from joulie_bus.events import codec
from joulie_bus.events.bounds import SEQ_DIGITS
from joulie_bus.streams.records import Record

Ints = npt.NDArray[np.int64]
_HERE = "it"


class PartReadings(NamedTuple):
    """Readings that a fold accepts as they are if their numbers continue, in the order of the log.

    Whoever wrote the archive wrote them too: a fold of other ones than those of the messages ends
    in another state than the manifests record.
    """

    nodes: Sequence[str]
    lives: Sequence[str]  # producer:boot
    sources: Sequence[str]
    providers: Sequence[str]
    row: Ints  # of its message in the part
    node: Ints  # index of `nodes`, and so on
    life: Ints
    source: Ints
    provider: Ints
    number: Ints  # in its life
    at: Ints  # when the broker stored it, in nanoseconds
    late_ms: Ints
    power_mw: Ints


class Counted(NamedTuple):
    """A message that is no reading in columns, by its row, and its number in a life."""

    row: int
    life: str
    number: int


@dataclass(frozen=True, eq=False)
class ColumnPart:
    """No message of it is lost: the position of a message is `first` and its row."""

    place: str  # for people
    first: int
    bodies: Sequence[bytes]
    records: Callable[[int, int], list[Record]]  # from a row up to the one before another
    readings: PartReadings

    def __len__(self) -> int:
        return len(self.bodies)

    @cached_property
    def others(self) -> list[int]:
        """The rows that are no reading in columns."""
        is_other = np.ones(len(self), np.bool_)
        is_other[self.readings.row] = False
        found: list[int] = np.flatnonzero(is_other).tolist()
        return found

    @cached_property
    def counted(self) -> list[Counted]:
        lives = frozenset(self.readings.lives)
        found = (_counted(row, self.bodies[row]) for row in self.others)
        return [each for each in found if each is not None and each.life in lives]


class ColumnBatch(NamedTuple):
    """The messages of a manifest: from a row up to the one before another."""

    part: ColumnPart
    begin: int
    end: int

    @property
    def bodies(self) -> Sequence[bytes]:
        return self.part.bodies[self.begin : self.end]

    def records(self) -> list[Record]:
        return self.part.records(self.begin, self.end)


def _counted(row: int, body: bytes) -> Counted | None:
    try:
        event_id = codec.open_envelope(body, _HERE).id
    except Undecodable:
        return None  # it is in quarantine, and was not counted
    life, _, number = event_id.rpartition(":")
    is_number = number.isascii() and number.isdigit() and len(number) <= SEQ_DIGITS
    return Counted(row, life, int(number)) if is_number else None
