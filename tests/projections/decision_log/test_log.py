"""The decision log: append-only, chained and gapless."""

import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Engine

from bus_kit import ask, node_seen, noon, one_of_each, records
from joulie_bus.errors import DatabaseSetBack, Fenced
from joulie_bus.events import (
    AnyEvent,
    Basis,
    BindDecided,
    Candidates,
    Event,
    FallbackAnswered,
    FilterDecided,
    OutcomeSeen,
    PreemptDecided,
    PrioritizeDecided,
    SettingsDeclared,
)
from joulie_bus.events.codec import Envelope, encode, seal
from joulie_bus.streams.records import Record, digest_of
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.entry import (
    FIRST_PREV,
    MAX_KEPT_BYTES,
    Entry,
    EntryFields,
    chain_hash,
    entry_of,
    header_of,
)
from joulie_projections.chain.head import Head
from joulie_projections.decision_log.heads import Signer, is_genuine
from joulie_projections.decision_log.log import DecisionLog, Signature
from joulie_projections.fold.commit import Input
from joulie_projections.history.history import EntryQuery, History, StoredEntry
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store
from projections_kit import tamper
from signed_heads import BESIDE, begun

ANSWERS = FilterDecided | PrioritizeDecided | PreemptDecided | FallbackAnswered | BindDecided


def filtered(uid: str = "pod-1", *, view: int = 5, now: int = noon()) -> FilterDecided:
    return FilterDecided(
        pod=ask(uid),
        basis=Basis(view=view, view_age_ms=3, now=now, settings="s"),
        candidates=Candidates(ordinals=b""),
        verdicts=b"",
    )


def declared() -> SettingsDeclared:
    return SettingsDeclared(settings="s", code="1", values={})


def is_answer(event: AnyEvent) -> bool:
    """Whether the event is an answer about a pod, computed from a view."""
    return isinstance(event, ANSWERS)


def decision_records(*events: AnyEvent) -> list[Record]:
    return records(*events, name="extender")


def unbounded(event: AnyEvent) -> bytes:
    """The message of a replica that does not check bounds."""
    data = msgspec.Raw(msgspec.msgpack.encode(event))
    return seal(Envelope(id="extender:b1:1", type=event.TYPE, v=1, key="k", ts=noon(), data=data))


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer.of(tmp_path / "key")


@pytest.fixture
def log(writer: Engine, signer: Signer) -> DecisionLog:
    """The log of a projector in epoch 1."""
    Store(writer).acquire("me", 10, "i", lambda _: False)
    return begun(DecisionLog(writer), signer.public)


def append(log: DecisionLog, messages: Sequence[Record], epoch: int = 1) -> int:
    """Appends the messages as those that follow in the stream; returns the end of the log."""
    after = log.end.read.sequence
    following = [each._replace(sequence=after + at) for at, each in enumerate(messages, 1)]
    log.append(epoch, following, "then")
    return log.end.pos


def entries(place: Place) -> list[StoredEntry]:
    with History.of(place) as history:
        return list(history.entries())


# --- appending --------------------------------------------------------------------------------


def test_an_empty_log_ends_at_position_zero(log: DecisionLog) -> None:
    assert (log.end.pos, log.end.hash, log.end.read) == (0, FIRST_PREV, Input("", 0))


def test_the_columns_of_an_entry_repeat_fields_of_its_body(log: DecisionLog, place: Place) -> None:
    messages = decision_records(declared(), filtered("u7", view=42))
    append(log, messages)

    first, second = entries(place)
    line = f"@00350051005400620065extender:b1:2\tdecision.filter\tu7\tteam/u7\t42\t{noon()}\n"
    body = line.encode() + messages[1].data
    assert second == StoredEntry(
        pos=2,
        event_id="extender:b1:2",
        kind="decision.filter",
        pod_uid="u7",
        pod="team/u7",
        view_position=42,
        decided_at=noon(),
        body=body,
        prev=first.hash,
        hash=chain_hash(first.hash, body),
    )
    assert (second.fields, second.message) == (entry_of(messages[1]).fields, messages[1].data)


@pytest.mark.parametrize(
    ("event", "columns"),
    [
        (declared(), ("", "", 0, noon())),
        *(
            (event, ("u", "team/u", 7, noon()))
            for event in one_of_each(uid="u")
            if is_answer(event)
        ),
        (OutcomeSeen(pod_uid="u", namespace="t", name="p", node="n"), ("u", "t/p", 0, noon())),
    ],
    ids=lambda part: part.TYPE if isinstance(part, Event) else "",
)
def test_every_kind_of_entry_has_its_columns(
    event: AnyEvent, columns: tuple[str, str, int, int]
) -> None:
    [messages] = decision_records(event)

    fields = EntryFields("extender:b1:1", event.TYPE, *columns)
    assert entry_of(messages) == Entry(fields, header_of(fields) + messages.data)


def test_entries_are_chained_without_a_gap_across_appends(log: DecisionLog, place: Place) -> None:
    messages = decision_records(declared(), *(filtered(f"p{number}") for number in range(6)))
    for first in range(0, len(messages), 3):
        append(log, messages[first : first + 3])

    prev = FIRST_PREV
    for pos, (entry, record) in enumerate(zip(entries(place), messages, strict=True), 1):
        assert (entry.pos, entry.prev, entry.message) == (pos, prev, record.data)
        prev = chain_hash(prev, entry.body)
        assert entry.hash == prev
    assert (log.end.pos, log.end.hash, log.end.read.sequence) == (7, prev, 7)


def test_a_repeated_event_is_stored_once(log: DecisionLog, place: Place) -> None:
    messages = decision_records(filtered("a"), filtered("b"), filtered("c"))

    ends = [append(log, [messages[0], messages[0]]), append(log, messages), append(log, messages)]

    assert ends == [1, 3, 3]
    assert [entry.pod_uid for entry in entries(place)] == ["a", "b", "c"]


def test_the_position_in_the_stream_moves_with_the_entries(log: DecisionLog) -> None:
    [first] = decision_records(filtered())
    log.append(1, [first._replace(sequence=9)], "then")
    log.append(1, [first._replace(sequence=12)], "then")  # a repeat

    read = Input("then", 12, digest_of(first))
    assert (log.end.pos, log.end.read, log.input()) == (1, read, read)


def test_another_message_with_the_id_of_an_entry_becomes_unreadable(
    log: DecisionLog, place: Place
) -> None:
    """Dropped as a repeat, one would take the place of the other without a trace."""
    [first], [other] = decision_records(filtered("a")), decision_records(filtered("b"))

    append(log, [first, other])
    append(log, [other])

    found = [(entry.event_id, entry.kind, entry.message) for entry in entries(place)]
    assert found == [
        ("extender:b1:1", "decision.filter", first.data),
        ("unreadable:2", "unreadable", other.data),
        ("unreadable:3", "unreadable", other.data),
    ]


def test_an_outcome_that_is_published_again_with_less_is_a_repeat(
    log: DecisionLog, place: Place
) -> None:
    ranked = OutcomeSeen(pod_uid="u", namespace="t", name="p", node="n", rank=1)
    append(log, [outcome(ranked), outcome(msgspec.structs.replace(ranked, rank=0))])

    assert [entry.message for entry in entries(place)] == [outcome(ranked).data]


def outcome(event: OutcomeSeen) -> Record:
    data = msgspec.Raw(encode(event))
    envelope = Envelope(id="outcome:u:1", type=event.TYPE, v=1, key="u", ts=noon(), data=data)
    return Record(Stream.DEC, 1, noon(), seal(envelope))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"garbage", id="garbage"),
        pytest.param(records(node_seen("n"))[0].data, id="a fact"),
        pytest.param(unbounded(filtered(view=2**63)), id="a position that no column holds"),
        pytest.param(unbounded(filtered(now=2**64 - 1)), id="a time that no column holds"),
        pytest.param(unbounded(filtered("nul\0")), id="a name that no column holds"),
        pytest.param(b"", id="nothing"),
        pytest.param(unbounded(filtered("tab\t")), id="a name with a tab"),
        pytest.param(unbounded(filtered("x" * 1_500)), id="a name that exceeds its bound"),
        pytest.param(bytes(MAX_KEPT_BYTES), id="the longest that is kept"),
        pytest.param(
            header_of(EntryFields("a", "b", "c", "d", 1, 2)), id="what looks like a header"
        ),
    ],
)
def test_an_unreadable_message_becomes_an_entry(
    log: DecisionLog, place: Place, data: bytes
) -> None:
    log.append(1, [Record(Stream.DEC, 3, noon(), data)], "then")
    append(log, decision_records(filtered()))

    first, second = entries(place)
    assert (first.event_id, first.kind, first.message) == ("unreadable:3", "unreadable", data)
    assert (second.pos, second.prev, second.kind) == (2, first.hash, "decision.filter")


@pytest.mark.parametrize("data", [bytes(MAX_KEPT_BYTES + 1), unbounded(filtered("x" * 10_000))])
def test_a_large_unreadable_message_is_its_length_and_digest(
    log: DecisionLog, place: Place, data: bytes
) -> None:
    log.append(1, [Record(Stream.DEC, 3, noon(), data)], "then")

    [entry] = entries(place)
    digest = hashlib.sha256(data).hexdigest()
    assert (entry.event_id, entry.kind) == ("unreadable:3:sha256", "unreadable")
    assert entry.message.decode() == f"{len(data)} bytes that are not kept, sha256 {digest}"


@pytest.mark.parametrize("epoch", [0, 2])
def test_another_epoch_is_fenced_and_appends_nothing(
    log: DecisionLog, place: Place, epoch: int
) -> None:
    with pytest.raises(Fenced):
        append(log, decision_records(filtered()), epoch)

    assert (entries(place), log.read_to()) == ([], 0)


def test_entries_behind_one_that_the_database_lost_are_refused(
    log: DecisionLog, place: Place
) -> None:
    first, second = decision_records(filtered("a"), filtered("b"))
    append(log, [first])
    tamper(place, "DELETE FROM decision")
    tamper(place, "UPDATE checkpoint SET position = 0 WHERE name = 'decisions'")

    with pytest.raises(DatabaseSetBack, match=r"is at entry of the decision log 0, .* committed 1"):
        append(log, [second])

    assert entries(place) == []


def test_an_append_whose_reply_was_lost_can_be_repeated(log: DecisionLog, place: Place) -> None:
    end = log.end
    append(log, decision_records(filtered("a")))
    log.end = end
    append(log, decision_records(filtered("a")))

    assert [entry.pod_uid for entry in entries(place)] == ["a"]
    assert (log.end.pos, log.foreign) == (1, 0)


# --- heads ------------------------------------------------------------------------------------


def test_the_end_of_a_database_that_lost_entries_is_not_signed(
    log: DecisionLog, place: Place, signer: Signer
) -> None:
    append(log, decision_records(filtered("a"), filtered("b")))
    tamper(place, "DELETE FROM decision WHERE pos = 2")

    with pytest.raises(DatabaseSetBack, match=r"at entry of the decision log 1, .* committed 2"):
        log.sign(1, signer, BESIDE)

    assert heads(place) == []


def test_a_head_names_the_end_of_the_log_and_is_signed_once(
    log: DecisionLog, place: Place, signer: Signer
) -> None:
    before = log.sign(1, signer, BESIDE)
    append(log, decision_records(filtered("a"), filtered("b")))

    head, again = log.sign(1, signer, BESIDE), log.sign(1, signer, BESIDE._replace(now=2))

    assert (before, again) == (None, None)
    assert head is not None
    assert (head.pos, head.hash) == (2, log.end.hash)
    assert is_genuine(head, signer.public)
    assert heads(place) == [head]


def test_a_head_signs_how_far_every_stream_was_read(log: DecisionLog, signer: Signer) -> None:
    facts = {Stream.TEL: Input("", 7), Stream.OBS: Input("", 2)}
    append(log, decision_records(filtered("a"), filtered("b")))

    head = log.sign(1, signer, Signature("inc", 9, b"m" * 32, facts, noon()))

    assert head is not None
    said = head.commitment
    assert (said.incarnation, said.position, said.manifest) == ("inc", 9, b"m" * 32)
    assert said.read == {**facts, Stream.DEC: log.end.read}
    assert said.messages == log.end.messages


def heads(place: Place) -> list[Head]:
    with History.of(place) as history:
        return history.heads()


# --- entries of a time range ------------------------------------------------------------------

# Replicas ship late: entry 3 is of 12:00, after an entry of 12:05.
MINUTES = (1, 5, 0, 6, 7, 2, 9, 9, 8, 12)


@pytest.mark.slow
@pytest.mark.parametrize("few", [10_000, 3, 0], ids=lambda few: f"{few} are few")
@pytest.mark.parametrize(
    ("span", "found"),
    [
        pytest.param({"since": 8}, [10, 9, 8, 7], id="since"),
        pytest.param({"since": 0}, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1], id="all"),
        pytest.param({"since": 13}, [], id="none"),
        pytest.param({"since": 2, "until": 6}, [6, 4, 2], id="a window"),
        pytest.param({"until": 2}, [6, 3, 1], id="until"),
    ],
)
def test_entries_of_a_time_range_are_found_newest_first_with_and_without_the_index(
    log: DecisionLog,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    few: int,
    span: dict[str, int],
    found: list[int],
) -> None:
    monkeypatch.setattr("joulie_projections.history.history.MAX_TIME_LOOKUP", few)
    append(log, decision_records(*(filtered(now=at_minute(minute)) for minute in MINUTES)))
    times = {end: at_minute(minute) for end, minute in span.items()}
    wanted = EntryQuery(since=times.get("since"), until=times.get("until"))

    with History.of(place) as history:
        before = [entry.pos for entry in history.entries_before(9, wanted)]
        assert [entry.pos for entry in history.find(wanted)] == found
        assert [entry.pos for entry in history.find(wanted, 2)] == found[:2]
        assert before == [pos for pos in found if pos < 9]


def test_pods_for_which_the_filter_was_asked_again_are_found_up_to_an_entry(
    log: DecisionLog, place: Place
) -> None:
    append(log, decision_records(*(filtered(uid) for uid in ("a", "b", "a", "c", "b"))))

    with History.of(place) as history:
        again = [history.asked_again(last) for last in (2, 3, 5)]

    assert again == [set(), {"a"}, {"a", "b"}]


def at_minute(minute: int) -> int:
    return noon(60 * minute)


@pytest.mark.parametrize("place", ["database_file"], indirect=True)
def test_few_entries_of_a_long_log_are_looked_up_without_a_scan(
    log: DecisionLog, place: Place
) -> None:
    append(log, decision_records(*(filtered(now=at_minute(minute)) for minute in range(500))))
    looks = 0

    def look() -> int:
        nonlocal looks
        looks += 1
        return 0

    with History.of(place) as history:
        # Called every ten instructions of the database; a scan of the log takes hundreds of calls.
        history._db.connection.dbapi_connection.set_progress_handler(look, 10)  # type: ignore[union-attr]
        found = [entry.pos for entry in history.find(EntryQuery(since=at_minute(498)))]

    assert found == [500, 499]
    assert looks < 100


@pytest.mark.parametrize("place", ["database_file"], indirect=True)
def test_the_newest_entries_of_a_long_log_are_read_without_those_before(
    log: DecisionLog, place: Place
) -> None:
    append(log, decision_records(*(filtered(now=at_minute(minute)) for minute in range(900))))

    def steps_to_read(entries: int) -> int:
        steps = 0

        def step() -> int:
            nonlocal steps
            steps += 1
            return 0

        with History.of(place) as history:
            newest = history.entries_before(1000, EntryQuery())
            raw = history.connection.connection.driver_connection
            assert raw is not None
            raw.set_progress_handler(step, 1)
            assert len(list(itertools.islice(newest, entries))) == entries
        return steps

    assert steps_to_read(50) * 10 < steps_to_read(900)
