"""The header of an entry holds its fields, and the database reads the same fields from it."""

import contextlib
import hashlib
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import CLUSTER, decided, node_seen, noon, one_of_each, producer
from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    AnyEvent,
    BindDecided,
    DecisionsDropped,
    FallbackAnswered,
    FilterDecided,
    OutcomeSeen,
    PreemptDecided,
    PrioritizeDecided,
    SettingsDeclared,
    StateSetBack,
    codec,
)
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_migrations import decision_table
from joulie_projections.chain.entry import (
    FIRST_PREV,
    MAX_COLUMN_INT,
    UNREADABLE,
    EntryFields,
    chain_hash,
    entry_of,
    fields_of_message,
    has_header,
    header_of,
    ids_and_kinds_in,
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
    ids, kinds = (fields.event_id, "a:1:7"), (fields.kind, "k")
    assert ids_and_kinds_in([body, header_of(PLAIN)]) == (
        [text.encode() for text in ids],
        [text.encode() for text in kinds],
    )


@given(entry_fields)
def test_a_body_without_a_header_is_a_message(fields: EntryFields) -> None:
    message = b"\x85message\n@"

    assert not has_header(message)
    assert ids_and_kinds_in([header_of(fields), message]) is None
    assert message_in(message) == message


@pytest.mark.parametrize("end", [b"x038", b"0x38", b"003x", b"    "])
def test_a_header_whose_offset_is_no_number_has_an_empty_id(end: bytes) -> None:
    header = header_of(PLAIN)

    assert ids_and_kinds_in([header[:1] + end + header[5:], header]) == (
        [b"", b"a:1:7"],
        [b"", b"k"],
    )


def test_the_id_of_a_long_header_is_read_whole() -> None:
    long = PLAIN._replace(event_id="x" * 1500)

    assert ids_and_kinds_in([header_of(long)]) == ([b"x" * 1500], [b"k"])


@settings(deadline=None)
@given(fields=entry_fields, message=st.binary())
def test_sqlite_generates_the_columns_from_the_header(fields: EntryFields, message: bytes) -> None:
    body = header_of(fields) + message

    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute(decision_table.TABLE)
        kept = (1, body, b"", b"")
        db.execute("INSERT INTO decision (pos, body, prev, hash) VALUES (?,?,?,?)", kept)
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
    b"@9999" * 5: b"",
    b"@-001" * 5: b"",
    b"@ab\tc": b"",
}


@pytest.mark.parametrize(("body", "event_id"), MALFORMED.items())
def test_a_malformed_header_raises_no_error(body: bytes, event_id: bytes) -> None:
    assert len(found_by(body)) == len(EntryFields._fields)
    found = ids_and_kinds_in([body])
    assert found is not None
    assert found[0] == [event_id]
    with pytest.raises(ValueError, match=r"."):
        parse_header(body)


def test_an_id_of_any_length_is_read() -> None:
    long = PLAIN._replace(event_id="x" * 500 + ":b1:7")

    assert ids_and_kinds_in([header_of(PLAIN), header_of(long)]) == (
        [b"a:1:7", long.event_id.encode()],
        [b"k", b"k"],
    )


# --- the entry of a message ---------------------------------------------------------------------

VIEW = 4711


def fields_of(event: AnyEvent) -> tuple[str, str, int, int]:
    fields = fields_of_message(producer("extender-0").stamp(event).data, "it")
    assert (fields.event_id, fields.kind) == ("extender-0:b1:1", event.TYPE)
    return fields.pod_uid, fields.pod, fields.view_position, fields.decided_at


def decisions(*kinds: type) -> list[AnyEvent]:
    found = [event for event in one_of_each(uid="web") if isinstance(event, kinds)]
    assert set(map(type, found)) == set(kinds)
    return found


def test_a_decision_has_the_view_and_the_time_that_it_names() -> None:
    kinds = (FilterDecided, PrioritizeDecided, PreemptDecided, BindDecided, FallbackAnswered)
    for event in decisions(*kinds):
        basis = replace(event.basis, view=VIEW, now=noon(5))  # type: ignore[union-attr]

        assert fields_of(replace(event, basis=basis)) == ("web", "team/web", VIEW, noon(5))


def test_an_outcome_has_its_pod_and_the_time_of_its_message() -> None:
    [event] = decisions(OutcomeSeen)

    assert fields_of(event) == ("web", "team/web", 0, noon())


def test_an_entry_about_the_log_has_no_pod() -> None:
    for event in decisions(SettingsDeclared, DecisionsDropped, StateSetBack):
        assert fields_of(event) == ("", "", 0, noon())


def test_a_fact_does_not_belong_in_the_decision_log() -> None:
    with pytest.raises(Undecodable, match=r"node\.seen does not belong in the decision log"):
        fields_of(node_seen("a"))


def recorded(data: bytes, subject: str = CLUSTER.decisions("extender-0")) -> Record:
    return Record(Stream.DEC, 7, noon(), data, subject)


def test_a_decision_of_its_sender_is_kept_under_its_fields() -> None:
    message = producer("extender-0").stamp(decided("web")).data
    entry = entry_of(recorded(message))

    assert (parse_header(entry.body), message_in(entry.body)) == (entry.fields, message)
    assert entry.fields == EntryFields(
        "extender-0:b1:1", "decision.filter", "web", "team/web", 0, noon()
    )
    assert entry_of(recorded(message, CLUSTER.decisions("other"))).fields.kind == UNREADABLE


def unreadable(place: str) -> EntryFields:
    return EntryFields(f"unreadable:{place}", "unreadable", "", "", 0, 0)


def test_a_message_that_is_no_decision_is_kept_if_it_is_short() -> None:
    message = b"x" * 4096
    entry = entry_of(recorded(message))

    assert entry.fields == parse_header(entry.body) == unreadable("7")
    assert message_in(entry.body) == message


def test_of_a_long_message_that_is_no_decision_the_digest_is_kept() -> None:
    message = b"x" * 4097
    entry = entry_of(recorded(message))
    digest = hashlib.sha256(message).hexdigest()

    assert entry.fields == parse_header(entry.body) == unreadable("7:sha256")
    assert message_in(entry.body) == f"4097 bytes that are not kept, sha256 {digest}".encode()


def message_with(**changed: object) -> bytes:
    envelope = codec.open_envelope(producer("extender-0").stamp(decided("web")).data, "it")
    return codec.seal(replace(envelope, **changed))


@pytest.mark.parametrize("boot", ["b\t1", "b\n1", "b\x1f1"])
def test_an_id_with_a_control_character_makes_a_message_unreadable(boot: str) -> None:
    assert entry_of(recorded(message_with(id="extender-0:b 1:1"))).fields.pod == "team/web"
    assert entry_of(recorded(message_with(id=f"extender-0:{boot}:1"))).fields.kind == UNREADABLE


def test_the_fields_of_an_entry_differ_by_the_first_that_is_another() -> None:
    for place, name in enumerate(EntryFields._fields):
        other = EntryFields(*PLAIN[:place], *("?" * (len(PLAIN) - place)))  # type: ignore[arg-type]

        assert PLAIN.differs_from(other) == name
    assert PLAIN.differs_from(PLAIN) == ""


def test_the_hash_of_an_entry_covers_the_one_before_it() -> None:
    assert chain_hash(FIRST_PREV, b"body") == hashlib.sha256(bytes(32) + b"body").digest()
