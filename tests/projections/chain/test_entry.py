"""The header of an entry holds its fields, and the database reads the same fields from it."""

import contextlib
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_migrations import decision_table
from joulie_projections.chain.entry import (
    MAX_COLUMN_INT,
    Entry,
    EntryFields,
    detached_header,
    event_ids_in,
    has_header,
    header_of,
    message_in,
    parse_header,
)

texts = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), max_size=300)
number = st.integers(-MAX_COLUMN_INT, MAX_COLUMN_INT)
entry_fields = st.builds(EntryFields, texts, texts, texts, texts, number, number)
PLAIN = EntryFields("a:1:7", "k", "u", "t/p", 1, 2)


@given(entry_fields, st.binary())
def test_a_body_is_its_header_and_the_message_as_received(
    fields: EntryFields, message: bytes
) -> None:
    body = header_of(fields) + message

    assert has_header(body)
    assert (parse_header(body), message_in(body)) == (fields, message)
    ids = [fields.event_id, "a:1:7", fields.event_id]
    assert event_ids_in([body, header_of(PLAIN), body]) == [texts.encode() for texts in ids]
    assert detached_header(Entry(fields, body)) is None


@given(entry_fields)
def test_a_message_without_a_header_has_a_detached_one(fields: EntryFields) -> None:
    message = b"\x85message\n@"

    assert not has_header(message)
    assert event_ids_in([header_of(fields), message]) is None
    assert message_in(message) == message
    assert detached_header(Entry(fields, message)) == header_of(fields)


@pytest.mark.parametrize("end", [b"x038", b"0x38", b"003x", b"    "])
def test_a_header_whose_offset_is_no_number_has_an_empty_id(end: bytes) -> None:
    header = header_of(PLAIN)

    assert event_ids_in([header[:1] + end + header[5:], header]) == [b"", b"a:1:7"]


def test_the_id_of_a_long_header_is_read_whole() -> None:
    long = PLAIN._replace(event_id="x" * 1500)

    assert event_ids_in([header_of(long)]) == [b"x" * 1500]


@settings(deadline=None)
@given(fields=entry_fields, message=st.binary(), is_detached=st.booleans())
def test_sqlite_generates_the_columns_from_the_header(
    fields: EntryFields, message: bytes, is_detached: bool
) -> None:
    body = b"\x85" + message if is_detached else header_of(fields) + message

    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute(decision_table.TABLE)
        kept = (1, body, b"", b"", detached_header(Entry(fields, body)))
        db.execute("INSERT INTO decision (pos, body, prev, hash, beside) VALUES (?,?,?,?,?)", kept)
        [found] = db.execute(f"SELECT {', '.join(EntryFields._fields)}, body FROM decision")

    assert found == (*fields, body)


def found_by(body: bytes) -> tuple[object, ...]:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute(decision_table.TABLE)
        db.execute("INSERT INTO decision (pos, body, prev, hash) VALUES (7, ?, x'', x'')", (body,))
        [found] = db.execute(f"SELECT {', '.join(EntryFields._fields)} FROM decision")
    return tuple(found)


@pytest.mark.parametrize("body", [b"", b"x", b"\x85", b"x@", b"0@0022"])
def test_an_entry_without_any_header_is_found_by_its_position(body: bytes) -> None:
    assert found_by(body) == ("?7", "", "", "", 0, 0)


MALFORMED = {
    b"@": b"",
    b"@\n": b"",
    b"@0022": b"",
    b"@00220023002400250026": b"",
    b"@9999" * 5: b"9999",
    b"@-001" * 5: b"",
    b"@ab\tc": b"",
}


@pytest.mark.parametrize(("body", "event_id"), MALFORMED.items())
def test_a_malformed_header_raises_no_error(body: bytes, event_id: bytes) -> None:
    assert len(found_by(body)) == len(EntryFields._fields)
    assert event_ids_in([body]) == [event_id]
    with pytest.raises(ValueError, match=r"."):
        parse_header(body)


def test_an_id_of_any_length_is_read() -> None:
    long = PLAIN._replace(event_id="x" * 500 + ":b1:7")

    assert event_ids_in([header_of(PLAIN), header_of(long)]) == [b"a:1:7", long.event_id.encode()]
