"""The messages of a part, column by column, in the order of the log."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from joulie_audit.columns.arrays import Ints, Names, names_of
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream

Placed = tuple[int, Record]  # a record at its position
STREAMS = {str(stream): stream for stream in Stream}


class Messages(NamedTuple):
    positions: Ints
    streams: Names
    sequences: Ints
    at: Ints  # when the broker stored them, in nanoseconds
    bodies: Sequence[bytes]
    subjects: Names

    @classmethod
    def of(cls, placed: Sequence[Placed]) -> "Messages":
        return cls(
            np.array([position for position, _ in placed], np.int64),
            names_of([str(record.stream) for _, record in placed]),
            np.array([record.sequence for _, record in placed], np.int64),
            np.array([record.at for _, record in placed], np.int64),
            [record.data for _, record in placed],
            names_of([record.subject for _, record in placed]),
        )

    def records(self, begin: int, end: int) -> list[Record]:
        """Of the rows from one up to the one before another."""
        rows = slice(begin, end)
        which: list[int] = self.streams.which[rows].tolist()
        on: list[int] = self.subjects.which[rows].tolist()
        streams = [STREAMS[self.streams.known[at]] for at in which]
        subjects = [self.subjects.known[at] for at in on]
        numbers = self.sequences[rows].tolist(), self.at[rows].tolist()
        fields = zip(streams, *numbers, self.bodies[rows], subjects, strict=True)
        return list(map(Record._make, fields))

    def of_streams(self, *streams: Stream) -> Ints:
        """The rows of these streams."""
        chosen = np.array([STREAMS[name] in streams for name in self.streams.known], np.bool_)
        return np.flatnonzero(chosen[self.streams.which]) if len(chosen) else self.positions[:0]


def merged(tables: Sequence[Messages]) -> Messages:
    """In the order of their positions."""
    filled = [each for each in tables if len(each.positions)]
    if len(filled) < 2:
        return [*filled, *tables][0]
    positions = np.concatenate([each.positions for each in filled])
    order = np.argsort(positions, kind="stable")
    bodies = list(chain.from_iterable(each.bodies for each in filled))
    return Messages(
        positions[order],
        _joined([each.streams for each in filled]).chosen(order),
        np.concatenate([each.sequences for each in filled])[order],
        np.concatenate([each.at for each in filled])[order],
        [bodies[row] for row in order.tolist()],
        _joined([each.subjects for each in filled]).chosen(order),
    )


def _joined(columns: Sequence[Names]) -> Names:
    known = {text: at for at, text in enumerate(dict.fromkeys(chain(*(c.known for c in columns))))}
    which = [np.array([known[text] for text in c.known], np.int64)[c.which] for c in columns]
    return Names(list(known), np.concatenate(which))
