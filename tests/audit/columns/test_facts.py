"""Typed tables of any messages are written and found again; no message stops the archiver."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import ANY_FACTS, NOON, any_fact, power, records
from joulie_audit.archive.columnar import Format, Parquet, Segment
from joulie_audit.columns.arrays import listed
from joulie_audit.columns.facts import fact_tables
from joulie_audit.columns.messages import Messages, Placed
from joulie_audit.columns.tables import KINDS, Columns, Kind
from joulie_bus.events import TelemetrySampled, codec
from joulie_bus.events.bounds import EVENT_ID, LARGEST
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream

FORMATS: list[Format] = [Parquet(), Segment()]
FEW = 30  # each writes and reads files, once and again for each column
SUBJECT = "joulie.agent.c.n1"
IDS = st.one_of(
    st.text(max_size=EVENT_ID),
    st.integers(0, 10**400).map(lambda number: f"agent-n1:b:{number}"[:EVENT_ID]),
)


class Made(NamedTuple):
    typed: Mapping[str, Columns]
    plain: list[Placed]
    others: list[Placed]


def made(messages: Sequence[Record], set_aside: Sequence[int] = ()) -> Made:
    placed = list(enumerate(messages, 1))
    tables = fact_tables(Messages.of(placed), set_aside)
    typed = {
        name: {
            column: listed(values, flags=KINDS[name][column] is Kind.FLAG)
            for column, values in columns.items()
        }
        for name, columns in tables.typed.items()
    }
    return Made(typed, *tables.split(placed))


def reading(event_id: str, fact: TelemetrySampled) -> Record:
    envelope = codec.Envelope(
        id=event_id,
        type=fact.TYPE,
        v=fact.VERSION,
        key=fact.node,
        ts=NOON,
        data=msgspec.Raw(codec.encode(fact)),
    )
    return Record(Stream.TEL, 1, NOON, codec.seal(envelope), SUBJECT)


def require_kept(tables: Made, form: Format, file: Path) -> None:
    for name, columns in tables.typed.items():
        form.write(file, columns, KINDS[name])
        assert form.holds(file.read_bytes(), columns, KINDS[name])
        for column in columns:
            assert not form.holds(
                file.read_bytes(), {**columns, column: [*columns[column], None]}, KINDS[name]
            )


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables") / "table"


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.suffix)
@settings(max_examples=FEW)
@given(chosen=st.lists(st.integers(0, ANY_FACTS - 1), max_size=20))
def test_tables_of_any_facts_are_found_as_they_were_written(
    form: Format, file: Path, chosen: list[int]
) -> None:
    messages = records(*map(any_fact, chosen))

    tables = made(messages)

    require_kept(tables, form, file)
    assert len(tables.plain) + len(tables.others) == len(messages)


@settings(max_examples=FEW)
@given(event_id=IDS)
def test_a_reading_with_any_id_is_written(file: Path, event_id: str) -> None:
    """A number of 300 digits fits no column."""
    tables = made([reading(event_id, power("n1", 7))])

    require_kept(tables, Parquet(), file)


@settings(max_examples=FEW)
@given(body=st.binary(max_size=60), stream=st.sampled_from(Stream))
def test_bytes_that_are_no_event_have_no_row(file: Path, body: bytes, stream: Stream) -> None:
    tables = made([Record(stream, 1, NOON, body, SUBJECT)])

    require_kept(tables, Parquet(), file)
    assert not any(column for table in tables.typed.values() for column in table.values())
    assert len(tables.others) == 1


def test_the_largest_values_are_written(file: Path) -> None:
    largest = TelemetrySampled(
        node="n1",
        power_mw=10**6,
        counted_from=LARGEST,
        energy_uj=LARGEST,
        card_mw={"g": 1},
        card_uj=(LARGEST,),
        pod_uj={"p": LARGEST},
    )

    tables = made([reading("agent-n1:b:999999999999999999", largest)])

    require_kept(tables, Parquet(), file)
    assert tables.typed["readings"]["energy_uj"] == [LARGEST]
    assert tables.typed["pod_readings"]["energy_uj"] == [LARGEST]


def test_a_quarantined_message_has_no_row() -> None:
    messages = records(power("n1", 7), power("n1", 8))

    tables = made(messages, [2])

    assert tables.typed["readings"]["power_mw"] == [7000]
    assert [position for position, _ in tables.others] == [2]


def with_cards_and_pods(cards: int, pods: int) -> TelemetrySampled:
    return TelemetrySampled(
        node="n1",
        power_mw=1000,
        card_mw={f"g{number}": 1 for number in range(cards)},
        pod_uj={f"p{number}": 1 for number in range(pods)},
    )


@pytest.mark.parametrize(("cards", "pods"), [(6, 0), (0, 6)])
def test_cards_and_pods_beyond_the_rows_of_a_table_are_left_out_with_their_reading(
    monkeypatch: pytest.MonkeyPatch, cards: int, pods: int
) -> None:
    """The ledger folds such a reading from its message."""
    monkeypatch.setattr("joulie_audit.columns.facts.MOST_ROWS", 10)
    messages = [
        reading(f"agent-n1:b:{number}", with_cards_and_pods(cards, pods)) for number in (1, 2)
    ]

    tables = made(messages)

    rows = [len(tables.typed[name]["position"]) for name in ("card_readings", "pod_readings")]
    assert rows == [cards, pods]
    assert len(tables.typed["readings"]["position"]) == 2
    assert 2 in [position for position, _ in tables.others]
