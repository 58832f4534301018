"""The readings of a part of the archive in columns, and its other records.

A ledger is folded from columns in a hundredth of the time that decoding the messages takes. They
are made from the messages when the part is written; the messages stay beside them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from joulie_audit.archive.columnar import Columns
from joulie_bus.events import codec
from joulie_bus.streams.authority import family_of, measured_on
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Family, Stream
from joulie_projections.energy.columns import LogColumns, ReadingColumns
from joulie_projections.energy.ledger import MEASURED, NS_PER_MS, counters_of_cards

READINGS, OTHERS = "readings", "others"
_STREAMS = {str(stream): stream for stream in Stream}
_TYPES = {
    **{"place": "<i4", "node": "<i4", "at_ms": "<i8", "mw": "<i8", "modelled": "<i1"},
    **{"life": "<i4", "seq": "<i8", "card_of": "<i4", "card": "<i4", "card_mw": "<i8"},
}
# Parts of earlier versions lack these: their readings have no counters.
_LATER_TYPES = {
    "mean_mw": "<i8",
    "counted_from": "<i8",
    "uj": "<i8",
    "late_ms": "<i8",
    "card_uj": "<i8",
}
_UNKNOWN = {"mean_mw": -1, "card_uj": -1}


class Row(NamedTuple):
    place: int
    node: str
    at_ms: int
    mw: int
    modelled: int
    life: str
    seq: int
    cards: Mapping[str, int]
    mean_mw: int
    counted_from: int
    uj: int
    late_ms: int
    card_uj: Sequence[int]


def log_columns(records: Sequence[Record]) -> LogColumns:
    rows: list[Row] = []
    others: list[tuple[int, Record]] = []
    for place, record in enumerate(records):
        row = _row_of(place, record)
        if row is None:
            others.append((place, record))
        else:
            rows.append(row)
    return LogColumns(_columns_of_rows(rows), others, len(records))


def _columns_of_rows(rows: Sequence[Row]) -> ReadingColumns:
    nodes = _Names(row.node for row in rows)
    lives = _Names(row.life for row in rows)
    cards = _Names(uuid for row in rows for uuid in row.cards)
    powers = [(at, *each) for at, row in enumerate(rows) for each in row.cards.items()]
    return ReadingColumns(
        nodes.names,
        lives.names,
        _array(row.place for row in rows),
        nodes.places,
        _array(row.at_ms for row in rows),
        _array(row.mw for row in rows),
        _array(row.modelled for row in rows),
        lives.places,
        _array(row.seq for row in rows),
        cards.names,
        _array(at for at, _, _ in powers),
        cards.places,
        _array(mw for _, _, mw in powers),
        _array(row.mean_mw for row in rows),
        _array(row.counted_from for row in rows),
        _array(row.uj for row in rows),
        _array(row.late_ms for row in rows),
        _array(uj for row in rows for uj in row.card_uj),
    )


class _Names:
    """Each name once, and the place of each occurrence in that list."""

    def __init__(self, occurrences: Iterable[str]) -> None:
        known: dict[str, int] = {}
        self.places = _array(known.setdefault(name, len(known)) for name in occurrences)
        self.names = list(known)


def _array(numbers: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.fromiter(numbers, np.int64)


def _row_of(place: int, record: Record) -> Row | None:
    """Of a reading that every fold accepts as it is, unless its number was counted before."""
    sample = codec.open_sample(record.data) if record.stream is Stream.TEL else None
    if sample is None:
        return None
    fact, (node, agent) = sample.data, measured_on(record.subject)
    if fact.pod_uj:
        return None
    life, _, number = sample.id.rpartition(":")
    producer = life.partition(":")[0]
    is_agent = family_of(Stream.TEL, producer) is Family.AGENT
    is_plain = number.isascii() and number.isdigit() and str(int(number)) == number
    if not is_plain or fact.node != node or sample.key != node or is_agent is not bool(agent):
        return None
    if not sample.id.startswith(agent):
        return None
    modelled = int(fact.source != MEASURED)
    at_ms = record.at // NS_PER_MS
    return Row(
        place,
        node,
        at_ms,
        fact.power_mw,
        modelled,
        life,
        int(number),
        fact.card_mw,
        -1 if fact.mean_mw is None else fact.mean_mw,
        fact.counted_from,
        fact.energy_uj,
        fact.late_ms,
        counters_of_cards(fact),
    )


def tables_of(columns: LogColumns) -> dict[str, Columns]:
    readings = columns.readings
    packed: dict[str, list[Any]] = {
        name: [np.diff(getattr(readings, name), prepend=0).astype(kind).tobytes()]
        for name, kind in (_TYPES | _LATER_TYPES).items()
    }
    packed["names"] = [msgspec.msgpack.encode((readings.nodes, readings.lives, readings.cards))]
    others = columns.others
    return {
        READINGS: packed,
        OTHERS: {
            "place": [place for place, _ in others],
            "stream": [str(record.stream) for _, record in others],
            "sequence": [record.sequence for _, record in others],
            "at": [record.at for _, record in others],
            "body": [record.data for _, record in others],
            "subject": [record.subject for _, record in others],
        },
    }


def columns_of(readings: Columns, others: Columns, count: int) -> LogColumns:
    nodes, lives, cards = msgspec.msgpack.decode(readings["names"][0], type=list[list[str]])
    arrays = {
        name: np.cumsum(np.frombuffer(readings[name][0], kind), dtype=np.int64)
        for name, kind in (_TYPES | _LATER_TYPES).items()
        if name in readings
    }
    lengths = {name: len(arrays["card" if name == "card_uj" else "place"]) for name in _LATER_TYPES}
    for name in _LATER_TYPES.keys() - arrays.keys():
        arrays[name] = np.full(lengths[name], _UNKNOWN.get(name, 0))
    streams = map(_STREAMS.__getitem__, others["stream"])
    rows = zip(
        streams, others["sequence"], others["at"], others["body"], others["subject"], strict=True
    )
    placed = list(zip(others["place"], map(Record._make, rows), strict=True))
    columns = ReadingColumns(nodes=nodes, lives=lives, cards=cards, **arrays)
    return LogColumns(columns, placed, count)
