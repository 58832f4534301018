"""Rows of the log that its writer did not write: what a process does that may insert beside it."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from bus_kit import decided, records
from joulie_bus.errors import Fenced
from joulie_bus.events import OutcomeSeen
from joulie_bus.streams.records import Record
from joulie_projections.chain.entry import Entry, entry_of, header_of
from joulie_projections.chain.log_end import chained
from joulie_projections.chain.merkle import TILE
from joulie_projections.decision_log.anchored import Anchored
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.decision_log.refusals import read_refusals
from joulie_projections.fold.commit import FirstBinding, Input
from joulie_projections.history.history import EntryQuery, History, StoredEntry
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store
from planted_rows import forged, plant
from projections_kit import tamper
from signed_heads import BESIDE, begun, head_at, insert_head


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer.of(tmp_path / "key")


@pytest.fixture
def log(writer: Engine, signer: Signer) -> DecisionLog:
    """The log of a projector in epoch 1, with three entries."""
    Store(writer).acquire("me", 10, "i", lambda _: False)
    made = begun(DecisionLog(writer), signer.public)
    append(made, answers("a", "b", "c"))
    return made


def answers(*uids: str) -> list[Record]:
    return records(*map(decided, uids), name="extender")


def append(log: DecisionLog, messages: Sequence[Record]) -> None:
    after = log.end.read.sequence
    following = [each._replace(sequence=after + at) for at, each in enumerate(messages, 1)]
    log.append(1, following, "then")


def entries(place: Place) -> list[StoredEntry]:
    with History.of(place) as history:
        return list(history.entries())


def moved(place: Place) -> list[tuple[str, int, str]]:
    with History.of(place) as history:
        _, found = history.foreign_rows(10)
    return [(row.table, row.pos, row.event_id) for row in found]


def rows(place: Place) -> int:
    with History.of(place) as history:
        return int(history.connection.scalar(text("SELECT count(*) FROM decision")) or 0)


# --- entries ------------------------------------------------------------------------------------


def test_the_message_takes_the_place_and_the_id_of_a_row_that_was_put_there_before(
    log: DecisionLog, place: Place
) -> None:
    """The id of a message to come is known: replica, boot, and the next number."""
    [*_, to_come] = answers("a", "b", "c", "true")
    plant(place, forged("forged", "extender:b1:4"))

    append(log, [to_come])

    found = entries(place)
    assert [entry.pod_uid for entry in found] == ["a", "b", "c", "true"]
    assert (found[3].event_id, found[3].message) == ("extender:b1:4", to_come.data)
    assert (moved(place), log.foreign) == ([("decision", 4, "extender:b1:4")], 1)


def test_the_log_goes_on_among_rows_that_are_put_behind_each_entry(
    log: DecisionLog, place: Place
) -> None:
    messages = answers(*map(str, range(9)))
    for number, message in enumerate(messages[3:], 3):
        for _ in range(2):
            plant(place, forged("forged", f"forged:b1:{number}{rows(place)}"))
        append(log, [message])

    found = entries(place)
    assert [entry.pos for entry in found] == list(range(1, 10))
    assert "forged" not in {entry.pod_uid for entry in found}
    assert log.foreign == len(moved(place)) + 2 == 12


def test_a_row_behind_the_end_is_moved_without_a_message(
    log: DecisionLog, place: Place, signer: Signer
) -> None:
    planted = plant(place, forged("forged", "forged:b1:1"))

    found, again = log.examine(1, signer.public), log.examine(1, signer.public)

    assert (found, again, rows(place)) == (1, 0, 3)
    with History.of(place) as history:
        body, digest = history.connection.execute(text("SELECT body, hash FROM foreign_row")).one()
    assert (bytes(body), bytes(digest)) == (planted.body, planted.hash)


def test_no_reader_shows_a_row_behind_the_end_that_the_writer_announced(
    log: DecisionLog, place: Place, writer: Engine
) -> None:
    with History.of(place) as history:
        before = history.counts()
    plant(place, forged("forged", "forged:b1:1"))

    with History.of(place) as history:
        assert history.tip() == 3
        assert history.counts() == before
        assert "forged" not in {entry.pod_uid for entry in history.entries()}
        assert list(history.find(EntryQuery(pod_uid="forged"))) == []
        assert history.entries_after(3, 10) == []
        assert (history.entry(4), history.position_of("forged:b1:1")) == (None, None)
        assert [entry.pos for entry in history.entries_before(9, EntryQuery())] == [3, 2, 1]
        assert len(history.newest_answers(9)) == 3
        assert "team/forged" not in history.pod_names(9)
        assert history.rows_behind() == 1
    assert read_refusals(writer, ["forged"]) == []


def test_the_head_signs_what_the_writer_wrote_and_not_the_newest_row(
    log: DecisionLog, place: Place, signer: Signer
) -> None:
    plant(place, forged("forged", "forged:b1:1"))

    with History.of(place) as history:
        waiting = history.unsigned_since()
    head = log.sign(1, signer, BESIDE)

    assert head is not None
    assert (head.pos, head.hash) == (3, entries(place)[2].hash)
    with History.of(place) as history:
        assert (waiting, history.unsigned_since()) == (entries(place)[0].decided_at, None)


def test_a_row_with_the_content_of_a_message_to_come_is_taken_as_it_is(
    log: DecisionLog, place: Place
) -> None:
    [*_, to_come] = answers("a", "b", "c", "next")
    plant(place, entry_of(to_come))

    append(log, [to_come])

    assert [entry.pod_uid for entry in entries(place)] == ["a", "b", "c", "next"]
    assert (log.foreign, moved(place)) == (0, [])


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_row_whose_columns_are_not_those_of_its_message_is_moved(
    log: DecisionLog, place: Place
) -> None:
    """PostgreSQL stores the columns: others would hide the decision from every query."""
    [*_, to_come] = answers("a", "b", "c", "next")
    body = entry_of(to_come).body
    plant(place, Entry(entry_of(to_come).fields._replace(pod="team/other"), body))

    append(log, [to_come])

    assert [entry.pod for entry in entries(place)] == [
        f"team/{uid}" for uid in ("a", "b", "c", "next")
    ]
    assert log.foreign == 1


def test_a_row_in_the_place_of_a_trimmed_entry_hides_no_message(
    log: DecisionLog, place: Place
) -> None:
    """The owner of the tables can put it there: the guards refuse it to others."""
    [*_, to_come] = answers("a", "b", "c", "true")
    planted = forged("forged", "extender:b1:4")
    tamper(place, "DELETE FROM decision WHERE pos = 1")
    if database.sqlite_file(place) is None:
        columns: tuple[str, ...] = ("pos", *planted.fields._fields, "body", "prev", "hash")
        values: tuple[object, ...] = (1, *planted.fields, planted.body, b"p", b"h")
    else:
        columns, values = ("pos", "body", "prev", "hash"), (1, planted.body, b"p", b"h")
    marks = ", ".join("?" * len(values))
    tamper(place, f"INSERT INTO decision ({', '.join(columns)}) VALUES ({marks})", *values)
    cut = (
        "number, pos, hash, p_to, manifest_head, log_seal, facts_seal, inputs, note, edge, made_at"
    )
    tamper(
        place,
        f"INSERT INTO cut ({cut}, made_by) VALUES (1, 2, ?, 1, ?, '', '', ?, ?, ?, 1, '')",
        b"h",
        b"m",
        b"\x80",
        b"",
        b"",
    )
    log._cut = 2

    append(log, [to_come])

    with History.of(place) as history:
        found = history.position_of("extender:b1:4")
    assert (found, log.foreign) == (4, 1)


# --- the record of the end ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    ["position = 4000", "position = 1", "head = inputs", "inputs = head"],
)
def test_a_changed_record_of_the_end_is_put_right(
    log: DecisionLog, place: Place, signer: Signer, change: str
) -> None:
    """A position that was set forward would let readers show any row behind the end."""
    end = log.end
    tamper(place, f"UPDATE checkpoint SET {change} WHERE name = 'decisions'")

    assert log.examine(1, signer.public) == 1
    assert (log.input(), entries(place)[-1].pos) == (end.read, 3)

    tamper(place, f"UPDATE checkpoint SET {change} WHERE name = 'decisions'")
    append(log, answers("a", "b", "c", "d")[3:])
    assert (log.input(), entries(place)[-1].pos) == (log.end.read, 4)


# --- heads and tiles ----------------------------------------------------------------------------


def test_a_head_that_no_key_signed_stops_neither_heads_nor_the_log(
    log: DecisionLog, place: Place, signer: Signer, tmp_path: Path
) -> None:
    """It would be the newest one, and the guards let no entry before the newest head go."""
    thief = Signer.of(tmp_path / "thief")
    planted = plant(place, forged("forged", "extender:b1:4"))
    insert_head(place, head_at(thief, 4, planted.hash))
    insert_head(place, head_at(thief, 10**9, bytes(32)))

    append(log, answers("a", "b", "c", "true")[3:])
    head = log.sign(1, signer, BESIDE)

    assert head is not None
    with History.of(place) as history:
        assert history.heads() == [head]
    assert entries(place)[-1].pod_uid == "true"
    assert sorted(moved(place)) == [
        ("decision", 4, "extender:b1:4"),
        ("head", 4, ""),
        ("head", 10**9, ""),
    ]


def test_a_head_that_no_key_signed_is_moved_while_nothing_is_written(
    log: DecisionLog, place: Place, signer: Signer, tmp_path: Path
) -> None:
    insert_head(place, head_at(Signer.of(tmp_path / "thief"), 10**9, bytes(32)))

    assert log.examine(1, signer.public) == 1
    with History.of(place) as history:
        assert history.count_heads() == 0


def test_several_heads_of_one_position_are_moved_at_once(
    log: DecisionLog, place: Place, signer: Signer, tmp_path: Path
) -> None:
    for name in ("thief", "other"):
        insert_head(place, head_at(Signer.of(tmp_path / name), 10**9, bytes(32)))

    assert log.examine(1, signer.public) == 2
    assert moved(place) == [("head", 10**9, "")] * 2


@pytest.mark.parametrize("record", [b"\x00", b"\xc1", b"", b"\x81\x01\x02", b"\x91" * 5000])
def test_a_record_that_is_none_stops_no_writer_that_begins(
    log: DecisionLog, place: Place, writer: Engine, signer: Signer, record: bytes
) -> None:
    tamper(place, "UPDATE checkpoint SET inputs = ? WHERE name = 'decisions'", record)

    again = DecisionLog(writer)
    assert again.recorded() == (3, Input("", 0))
    begun(again, signer.public)

    assert again.recorded() == (again.end.pos, again.end.read)


def test_a_false_tile_is_replaced_by_the_head_that_signs_it(
    log: DecisionLog, place: Place, signer: Signer
) -> None:
    tamper(place, "INSERT INTO tree_tile (number, root) VALUES (0, ?)", bytes(32))
    append(log, answers(*map(str, range(TILE + 9)))[3:])

    assert log.sign(1, signer, BESIDE) is not None
    with History.of(place) as history:
        [root] = history.tree_tiles()
    assert root != bytes(32)


# --- outcomes -----------------------------------------------------------------------------------


def test_an_outcome_that_the_writer_did_not_write_settles_nothing(
    log: DecisionLog, place: Place, writer: Engine
) -> None:
    due = FirstBinding(7, 1, "a", "team", "a", "n", -1)
    names, marks = ", ".join(due._fields), ", ".join(f":{name}" for name in due._fields)
    with writer.begin() as db:
        db.execute(text(f"INSERT INTO outcome_due ({names}) VALUES ({marks})"), due._asdict())
    seen = OutcomeSeen(pod_uid="a", namespace="team", name="a", node="other")
    [message] = records(seen, name="forger")
    plant(
        place,
        Entry(
            entry_of(message).fields._replace(kind=OutcomeSeen.TYPE, pod_uid="a"),
            header_of(entry_of(message).fields) + message.data,
        ),
    )

    log.drop_settled(1)

    assert [bound.pod_uid for bound, _ in log.due(10)] == ["a"]


# --- a process that begins ----------------------------------------------------------------------


def test_a_writer_that_begins_takes_no_row_for_its_own(
    log: DecisionLog, place: Place, writer: Engine, signer: Signer
) -> None:
    log.sign(1, signer, BESIDE)
    later = answers(*"abcdef")[3:]
    append(log, later)
    plant(place, forged("forged", "extender:b1:7"))
    tamper(place, "UPDATE checkpoint SET position = 7 WHERE name = 'decisions'")
    Store(writer).acquire("next", 10, "i", lambda _: True)

    begins = begun(DecisionLog(writer), signer.public, epoch=2)
    assert (begins.end.pos, [entry.pos for entry in entries(place)]) == (3, [1, 2, 3])
    following = [each._replace(sequence=4 + at) for at, each in enumerate(later)]
    begins.append(2, following, "then")
    begins.move_underived(2, signer.public)

    assert [entry.pod_uid for entry in entries(place)] == list("abcdef")
    assert moved(place) == [("decision", 7, "extender:b1:7")]


def test_entries_that_follow_a_foreign_row_are_written_again_behind_their_messages(
    log: DecisionLog, place: Place, writer: Engine, signer: Signer
) -> None:
    log.sign(1, signer, BESIDE)
    plant(place, forged("forged", "extender:b1:4"))
    plant(place, forged("later", "extender:b1:5"))
    Store(writer).acquire("next", 10, "i", lambda _: True)

    begins = begun(DecisionLog(writer), signer.public, epoch=2)
    messages = answers(*"abcdef")[3:]
    begins.append(2, [each._replace(sequence=4 + at) for at, each in enumerate(messages)], "then")

    found = entries(place)
    assert [entry.pod_uid for entry in found] == list("abcdef")
    again = chained(log.end, [entry_of(each) for each in messages], begins.end.read)
    assert [entry.hash for entry in found[3:]] == [row.hash for row in again.rows]
    assert len(moved(place)) == 2


def test_nothing_is_signed_before_the_log_has_the_newest_signed_entry(
    log: DecisionLog, writer: Engine, place: Place, signer: Signer
) -> None:
    """The database is a copy from before that head."""
    log.sign(1, signer, BESIDE)
    append(log, answers(*"abcde")[3:])
    newest = log.sign(1, signer, BESIDE)
    assert newest is not None
    tamper(place, "DELETE FROM head WHERE pos > 3")
    tamper(place, "DELETE FROM decision WHERE pos > 3")
    Store(writer).acquire("next", 10, "i", lambda _: True)
    begins = DecisionLog(writer)
    known = Anchored(signer.public, [newest])
    begins.begin(2, begins.beginning(known), known)

    messages = [each._replace(sequence=at) for at, each in enumerate(answers(*"abcdef"), 1)]
    begins.append(2, messages[3:4], "then")
    early, is_behind = begins.sign(2, signer, BESIDE), begins.is_behind
    begins.append(2, messages[4:], "then")
    begins.restore_lost_heads(2)
    later = begins.sign(2, signer, BESIDE)

    assert (early, is_behind, begins.is_behind, begins.problem) == (None, True, False, "")
    assert later is not None
    with History.of(place) as history:
        assert [head.pos for head in history.heads()] == [3, 5, 6]


def test_a_log_that_contradicts_a_signed_head_is_named_and_not_signed(
    log: DecisionLog, writer: Engine, signer: Signer
) -> None:
    log.sign(1, signer, BESIDE)
    Store(writer).acquire("next", 10, "i", lambda _: True)
    begins = DecisionLog(writer)
    known = Anchored(signer.public, [head_at(signer, 4, b"another")])
    begins.begin(2, begins.beginning(known), known)

    begins.append(2, [answers(*"abcd")[3]._replace(sequence=4)], "then")

    assert begins.problem == (
        "the log was forked at entry 4: a signed head names another hash of it"
    )
    assert begins.sign(2, signer, BESIDE) is None


def test_a_signed_head_of_an_entry_that_differs_is_named_at_the_beginning(
    log: DecisionLog, writer: Engine, signer: Signer
) -> None:
    log.sign(1, signer, BESIDE)
    Store(writer).acquire("next", 10, "i", lambda _: True)
    begins = DecisionLog(writer)
    known = Anchored(signer.public, [head_at(signer, 2, b"another")])
    begins.begin(2, begins.beginning(known), known)

    assert begins.problem.startswith("the log was forked at entry 2")


def test_entries_that_do_not_lead_to_the_signed_root_are_not_signed_again(
    log: DecisionLog, writer: Engine, place: Place, signer: Signer
) -> None:
    log.sign(1, signer, BESIDE)
    tamper(place, "UPDATE decision SET hash = prev WHERE pos = 1")
    Store(writer).acquire("next", 10, "i", lambda _: True)

    begins = begun(DecisionLog(writer), signer.public, epoch=2)

    assert begins.problem == "the entries up to 3 do not lead to the root that their head signs"


def test_a_false_tile_before_the_newest_head_is_computed_again(
    log: DecisionLog, writer: Engine, place: Place, signer: Signer
) -> None:
    append(log, answers(*map(str, range(TILE + 9)))[3:])
    log.sign(1, signer, BESIDE)
    root = log.end.tree.root
    tamper(place, "UPDATE tree_tile SET root = ?", bytes(32))
    Store(writer).acquire("next", 10, "i", lambda _: True)

    begins = begun(DecisionLog(writer), signer.public, epoch=2)

    assert (begins.problem, begins.end.tree.root) == ("", root)


def test_two_writers_cannot_both_write(log: DecisionLog, writer: Engine, signer: Signer) -> None:
    Store(writer).acquire("next", 10, "i", lambda _: True)
    begun(DecisionLog(writer), signer.public, epoch=2)

    with pytest.raises(Fenced):
        append(log, answers(*"abcd")[3:])
    with pytest.raises(Fenced):
        log.examine(1, signer.public)
    with pytest.raises(Fenced):
        log.sign(1, signer, BESIDE)
