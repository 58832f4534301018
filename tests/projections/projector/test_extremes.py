"""Every field of every event at its extremes, on both databases: all positions are committed,
unreadable messages are quarantined, nothing fails or is retried, and a replay gives the same state.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy import Engine

from bus_kit import ask, noon, one_of_each, power, producer
from joulie_bus.errors import OutOfBounds
from joulie_bus.events import FACT_TYPES, AnyEvent, codec
from joulie_bus.events.bounds import (
    EVENT_ID,
    LARGEST,
    MOST_BYTES,
    MOST_CARD_MB,
    MOST_CARDS,
    MOST_CPU_MILLI,
    MOST_FACILITY_MW,
    MOST_GPU_MILLI,
    MOST_MW,
    NAME,
    PRODUCER,
    TEXT,
    UID,
    WORD,
)
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream, stream_of
from joulie_projections.chain.entry import chain_hash
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.fold.sequence import FoldCursor, SequencedBatch, fold, sequence
from joulie_projections.history.history import History
from joulie_projections.pods.load import load_of
from joulie_projections.state.rows import changed_rows, empty_digests, state_digest
from joulie_projections.state.state import (
    ClusterState,
)
from joulie_projections.state.state_changes import Draft
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store

BOUNDS = (
    *(100, 1000, 86_400, 2**31, LARGEST),
    *(MOST_BYTES, MOST_CARDS, MOST_CARD_MB, MOST_CPU_MILLI, MOST_GPU_MILLI),
    *(MOST_MW, MOST_FACILITY_MW),
)
INTEGERS = (-LARGEST - 1, -1, 0, *BOUNDS, *(bound + 1 for bound in BOUNDS), 2**64 - 1)
TEXTS = (
    "",
    *("\0", "a\0b", "a\nb", "\x1f", "\x7f", "\x9f", "\u2028", "\U0010ffff"),
    *("x" * length for length in (UID, UID + 1, NAME, NAME + 1, WORD, WORD + 1, 8192)),
    *("\U0010ffff" * length for length in (UID, NAME, WORD)),
    *("x" * TEXT, "x" * (TEXT + 1)),
)
ODD: tuple[object, ...] = (
    *(None, True, b"\0", [], {}, ["\0"], {"\0": "\0"}, [[[]]], {"a": {"b": [None]}}),
    *(math.nan, math.inf, -math.inf, 1e308, 0.5),
    msgspec.Raw(b"\xa3\xed\xa0\x80"),  # a text with half of a surrogate pair
    msgspec.Raw(b"\x91" * 3000 + b"\xc0"),  # deeply nested
    msgspec.Raw(b"\xcf" + b"\xff" * 8),
    msgspec.Raw(b"\xc1"),  # a byte that MessagePack never uses
)
EXTREMES = (*INTEGERS, *TEXTS, *ODD)
SENT: tuple[object, ...] = (
    *(*INTEGERS, *TEXTS, None, 2**64, 10**400, "\ud800", math.nan, math.inf, []),
)
CREATED = dict.fromkeys(Stream, "then")
START = FoldCursor(0, {}, empty_digests(), b"")
_encode = msgspec.msgpack.Encoder().encode


def variants(value: object) -> Iterator[object]:
    """The value with one part replaced by an extreme; dicts also get unusual keys."""
    yield from EXTREMES
    if isinstance(value, dict):
        for name, part in value.items():
            for other in variants(part):
                yield value | {name: other}
        for key in ("\0", "x" * 400, "extra"):
            yield value | {key: "there"}
    elif isinstance(value, list) and value:
        for other in variants(value[0]):
            yield [other, *value[1:]]
        yield value * 1200


def plain(event: AnyEvent) -> dict[str, Any]:
    """All fields, including those with default values."""
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    made: dict[str, Any] = msgspec.to_builtins(fields, builtin_types=(bytes,))
    return made


def messages_of(event: AnyEvent) -> Iterator[bytes]:
    """A message for each extreme of each field of the event and of its envelope."""
    number = 0
    for name, value in plain(event).items():
        for other in variants(value):
            number += 1
            yield sealed(event, number, plain(event) | {name: other})
    for name in ("id", "type", "v", "key", "ts", "cause", "corr"):
        for other in EXTREMES:
            yield sealed(event, 0, plain(event), **{name: other})
    for part in ("x" * 400, "\0", "", "x" * NAME):
        yield sealed(event, 0, plain(event), id=f"{part}:b:1")
        yield sealed(event, 0, plain(event), id=f"p:{part}:1")


def sealed(event: AnyEvent, number: int, data: object, **changed: object) -> bytes:
    name = f"fuzz-{event.TYPE}"
    whole = {
        "id": f"{name}:b:{number}",
        "type": event.TYPE,
        "v": event.VERSION,
        "key": key_of(event, data),
        "ts": noon(),
        "data": data,
    }
    return _encode(whole | changed)


def key_of(event: AnyEvent, data: object) -> str:
    """The key of the event that a reader decodes from the data."""
    try:
        return msgspec.msgpack.decode(_encode(data), type=type(event)).key
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return event.key


def facts() -> list[Record]:
    messages = [event for event in one_of_each() if isinstance(event, FACT_TYPES)]
    made: list[Record] = []
    for stream in MERGE_ORDER:
        bodies = [
            body for each in messages if stream_of(each) is stream for body in messages_of(each)
        ]
        made += [Record(stream, n, noon(n), body) for n, body in enumerate(bodies, 1)]
    return made


def in_parts(records: Sequence[Record], size: int) -> Iterator[Sequence[Record]]:
    for at in range(0, len(records), size):
        yield records[at : at + size]


@pytest.mark.slow
def test_every_extreme_takes_a_position_and_a_refold_gives_the_same(
    place: Place, writer: Engine
) -> None:
    messages = facts()
    store, cluster_state, cursor = Store(writer), ClusterState(), START
    assert store.acquire("me", 10, "i", lambda _: False) is not None

    for part in in_parts(messages, 1000):
        done: SequencedBatch = sequence(cluster_state, cursor, part, CREATED, noon())
        store.commit(1, done.commit)
        done.draft.commit()
        cursor = done.cursor

    with History.of(place) as history:
        held, aside, digests = history.checkpoint(), history.set_aside(), history.digests()
        assert history.counts().quarantined == len(aside)
    assert held is not None
    assert held.position == len(messages) > 5000
    assert held.digests == digests == cursor.digests
    assert 0 < len(messages) - len(aside) < len(messages)
    again = Draft(ClusterState())
    refolded = fold(again, messages, 0, aside)
    assert refolded.poison == []
    _, refold = changed_rows(again.changed(), empty_digests())
    assert state_digest(refold) == state_digest(digests)


def test_an_extreme_decision_does_not_keep_others_from_the_log(
    place: Place, writer: Engine
) -> None:
    messages = [event for event in one_of_each() if not isinstance(event, FACT_TYPES)]
    bodies = [body for event in messages for body in messages_of(event)]
    records = [Record(Stream.DEC, number, noon(), body) for number, body in enumerate(bodies, 1)]
    Store(writer).acquire("me", 10, "i", lambda _: False)
    log = DecisionLog(writer)
    log.begin_empty(1)

    for part in parts(records, 400):
        log.append(1, part, "then")

    added = log.end.pos
    assert added > 1000
    with History.of(place) as history:
        prev = bytes(32)
        for entry in history.entries():
            assert entry.hash == chain_hash(prev, entry.body)
            prev = entry.hash
        assert history.tip() == added


def parts(entries: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for at in range(0, len(entries), size):
        yield entries[at : at + size]


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.TYPE)
def test_readers_accept_every_event_that_a_producer_sends(event: AnyEvent) -> None:
    refused = 0
    for name in event.__struct_fields__:
        for extreme in SENT:
            odd = msgspec.structs.replace(event, **{name: extreme})
            try:
                data = producer().stamp(odd).data
            except OutOfBounds:
                refused += 1
                continue
            assert type(codec.decoded(data, "it")) is type(event)

    assert refused > 0


@pytest.mark.parametrize(
    ("name", "boot"), [("", "b"), ("x" * (PRODUCER + 1), "b"), ("a\0", "b"), ("a", "b" * 65)]
)
def test_a_producer_with_an_invalid_name_is_refused(name: str, boot: str) -> None:
    with pytest.raises(OutOfBounds):
        producer(name, boot).stamp(power("n", 1))


def test_a_refused_event_takes_no_number() -> None:
    sender = producer()
    with pytest.raises(OutOfBounds):
        sender.stamp(power("n", 1e20))
    for odd in ("\0", "x" * 254):
        with pytest.raises(OutOfBounds):
            sender.stamp(power("n", 1), corr=odd)
    for odd in ("x" * (EVENT_ID + 1), "\ud800"):
        with pytest.raises(OutOfBounds):
            sender.stamp(power("n", 1), cause=odd)

    assert sender.stamp(power("n", 1)).id.endswith(":1")


def test_the_sum_of_a_million_largest_values_fits_a_row() -> None:
    largest = replace(ask("u"), cpu_milli=MOST_CPU_MILLI, memory_bytes=MOST_BYTES)
    largest = replace(largest, gpu_milli=MOST_GPU_MILLI)

    for workload in ("standard", "performance"):
        one = load_of(replace(largest, workload=workload))
        assert max(msgspec.structs.astuple(one)) * 10**6 <= LARGEST
    assert MOST_MW * 10**6 <= LARGEST
