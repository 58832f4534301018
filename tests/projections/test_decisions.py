"""The decision log only grows: chained, gapless, and shut to everything but the next entry."""

import contextlib
import sqlite3
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import DatabaseError

from joulie_bus.errors import Fenced
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
from joulie_bus.records import Record
from joulie_bus.subjects import Stream
from joulie_bus.testing import ask, node_seen, noon, one_of_each, records
from joulie_projections.commit import Input
from joulie_projections.decisions import FIRST_PREV, DecisionLog, Entry, Tip, chain_hash, entry_of
from joulie_projections.heads import Signer, is_genuine
from joulie_projections.history import History, Logged
from joulie_projections.rows import no_rows
from joulie_projections.sequence import Standing, sequence
from joulie_projections.store import Store
from joulie_projections.world import World

READ = Input("then", 1)
COLUMNS = "pos, event_id, kind, pod_uid, pod, view_position, decided_at, body, prev, hash"
ANSWERS = FilterDecided | PrioritizeDecided | PreemptDecided | FallbackAnswered | BindDecided
CHAIN = "'k', 'u', 'p', 0, 0, x'00'"


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
    """Whether it is an answer: given about a pod, from a view."""
    return isinstance(event, ANSWERS)


def said(*events: AnyEvent) -> list[Record]:
    return records(*events, name="extender")


@pytest.fixture
def log(writer: Engine) -> DecisionLog:
    """Of a projector in epoch 1."""
    Store(writer).acquire("me", noon(10), noon(), "i", lambda _: False)
    made = DecisionLog(writer)
    made.open()
    return made


def append(log: DecisionLog, told: Sequence[Record], epoch: int = 1) -> int:
    return log.append(epoch, [entry_of(record) for record in told], READ)


def entries(path: Path) -> list[Logged]:
    with History.of(path) as history:
        return list(history.entries())


# --- appending --------------------------------------------------------------------------------


def test_an_empty_log_ends_at_nothing(log: DecisionLog) -> None:
    assert log.open() == (Tip(0, FIRST_PREV), Input("", 0))


def test_an_entry_repeats_in_columns_what_its_body_says(
    log: DecisionLog, database_file: Path
) -> None:
    told = said(declared(), filtered("u7", view=42))
    append(log, told)

    first, second = entries(database_file)
    assert second == Logged(
        pos=2,
        event_id="extender:b1:2",
        kind="decision.filter",
        pod_uid="u7",
        pod="team/u7",
        view_position=42,
        decided_at=noon(),
        body=told[1].data,
        prev=first.hash,
        hash=chain_hash(first.hash, told[1].data),
    )


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
    [told] = said(event)

    assert entry_of(told) == Entry("extender:b1:1", event.TYPE, *columns, told.data)


def test_entries_are_chained_without_a_gap_over_every_append(
    log: DecisionLog, database_file: Path
) -> None:
    told = said(declared(), *(filtered(f"p{number}") for number in range(6)))
    for first in range(0, len(told), 3):
        append(log, told[first : first + 3])

    prev = FIRST_PREV
    for pos, (entry, record) in enumerate(zip(entries(database_file), told, strict=True), 1):
        assert (entry.pos, entry.prev, entry.body) == (pos, prev, record.data)
        prev = chain_hash(prev, record.data)
        assert entry.hash == prev
    assert log.open() == (Tip(7, prev), READ)


def test_the_same_event_is_there_once_however_often_it_comes(
    log: DecisionLog, database_file: Path
) -> None:
    told = said(filtered("a"), filtered("b"), filtered("c"))

    added = [append(log, [told[0], told[0]]), append(log, told), append(log, told)]

    assert added == [1, 2, 0]
    assert [entry.pod_uid for entry in entries(database_file)] == ["a", "b", "c"]


def test_how_far_the_stream_was_read_moves_with_the_entries(log: DecisionLog) -> None:
    log.append(1, [entry_of(record) for record in said(filtered())], Input("then", 9))
    log.append(1, [], Input("then", 12))

    assert (log.read_to(), log.open()[1]) == (12, Input("then", 12))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"garbage", id="garbage"),
        pytest.param(records(node_seen("n"))[0].data, id="a fact"),
        pytest.param(said(filtered(view=2**63))[0].data, id="a position that no column holds"),
        pytest.param(said(filtered(now=2**64 - 1))[0].data, id="a time that no column holds"),
    ],
)
def test_what_cannot_be_read_becomes_an_entry_too(
    log: DecisionLog, database_file: Path, data: bytes
) -> None:
    append(log, [Record(Stream.DEC, 3, noon(), data), *said(filtered())])

    first, second = entries(database_file)
    assert (first.event_id, first.kind, first.body) == ("unreadable:3", "unreadable", data)
    assert (second.pos, second.prev, second.kind) == (2, first.hash, "decision.filter")


@pytest.mark.parametrize("epoch", [0, 2])
def test_another_epoch_is_fenced_and_appends_nothing(
    log: DecisionLog, database_file: Path, epoch: int
) -> None:
    with pytest.raises(Fenced):
        append(log, said(filtered()), epoch)

    assert (entries(database_file), log.read_to()) == ([], 0)


# --- heads ------------------------------------------------------------------------------------


def test_a_head_says_where_the_log_ends_and_is_signed_once(
    log: DecisionLog, tmp_path: Path
) -> None:
    signer = Signer.of(tmp_path / "key")
    before = log.sign_head(signer, noon())
    append(log, said(filtered("a"), filtered("b")))

    head, again = log.sign_head(signer, noon(1)), log.sign_head(signer, noon(2))

    assert (before, again) == (None, None)
    assert head is not None
    assert Tip(head.pos, head.hash) == log.open()[0]
    assert is_genuine(head, signer.public)


# --- what is refused --------------------------------------------------------------------------


@pytest.fixture
def full(writer: Engine, log: DecisionLog, tmp_path: Path) -> Engine:
    """Two decisions, a head and a batch."""
    append(log, said(filtered("a"), filtered("b")))
    log.sign_head(Signer.of(tmp_path / "key"), noon())
    start = Standing(0, {}, no_rows(), b"")
    done = sequence(World(), start, records(node_seen("n")), dict.fromkeys(Stream, ""), noon())
    Store(writer).commit(1, done.commit)
    return writer


@pytest.fixture
def bare(full: Engine, database_file: Path) -> Generator[sqlite3.Connection, None, None]:
    """Somebody with the file, and without our guards."""
    connection = sqlite3.connect(database_file, isolation_level=None)
    yield connection
    connection.close()


def copied(table: str, verb: str, suffix: str = "") -> str:
    return f"{verb} INTO {table} SELECT * FROM {table} WHERE true LIMIT 1{suffix}"


def placed(pos: int, event_id: str, prev: str, verb: str = "INSERT") -> str:
    """An entry of its own making; `prev` is SQL."""
    return (
        f"{verb} INTO decision ({COLUMNS}) VALUES ({pos}, '{event_id}', {CHAIN}, ({prev}), x'77')"
    )


FORGED = [
    *(f"UPDATE {table} SET rowid = rowid" for table in ("decision", "batch", "head")),
    "UPDATE decision SET body = x'00' WHERE pos = 1",
    "UPDATE batch SET merkle_root = x'00'",
    "UPDATE head SET signature = x'00'",
    *(f"DELETE FROM {table}" for table in ("decision", "batch", "head")),
    *(copied(table, "INSERT OR REPLACE") for table in ("decision", "batch", "head")),
    *(copied(table, "REPLACE") for table in ("decision", "batch", "head")),
    copied("decision", "INSERT", " ON CONFLICT (pos) DO UPDATE SET body = x'00'"),
    copied("batch", "INSERT", " ON CONFLICT (p_to) DO UPDATE SET merkle_root = x'00'"),
    copied("head", "INSERT", " ON CONFLICT (pos) DO UPDATE SET signature = x'00'"),
    placed(3, "extender:b1:1", "SELECT hash FROM decision WHERE pos = 2", "REPLACE"),
    placed(3, "new", "SELECT hash FROM decision WHERE pos = 2", "REPLACE").replace(
        f"({COLUMNS}) VALUES (", f"(rowid, {COLUMNS}) VALUES (1, "
    ),
]
MISPLACED = [
    pytest.param(placed(2, "new", "SELECT hash FROM decision WHERE pos = 1"), id="taken"),
    pytest.param(placed(9, "new", "SELECT hash FROM decision WHERE pos = 2"), id="a gap"),
    pytest.param(placed(3, "new", "x'00'"), id="another chain"),
    pytest.param(placed(3, "new", "SELECT hash FROM decision WHERE pos = 1"), id="a fork"),
    pytest.param(placed(0, "new", "x'00'"), id="before the first"),
]
UNBUILT = [
    *(f"DROP TABLE {table}" for table in ("decision", "batch", "head")),
    *(f"ALTER TABLE {table} RENAME TO elsewhere" for table in ("decision", "batch", "head")),
    "ALTER TABLE decision DROP COLUMN kind",
    *(f"DROP TRIGGER {table}_no_delete" for table in ("decision", "batch", "head")),
    "DROP TRIGGER decision_chained",
]


def guarded(path: Path) -> list[list[Any]]:
    """Everything that must not change."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        found = [
            db.execute(f"SELECT * FROM {table}").fetchall()
            for table in ("decision", "batch", "head")
        ]
        found.append(db.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall())
    db.close()
    return found


@pytest.mark.parametrize("statement", [*FORGED, *MISPLACED, *UNBUILT])
def test_the_writer_itself_cannot_touch_what_was_written(
    full: Engine, database_file: Path, statement: str
) -> None:
    was = guarded(database_file)

    with pytest.raises(DatabaseError), full.begin() as db:
        db.exec_driver_sql(statement)

    assert guarded(database_file) == was


@pytest.mark.parametrize("statement", [*FORGED, *MISPLACED])
def test_the_file_refuses_a_stranger_too(
    bare: sqlite3.Connection, database_file: Path, statement: str
) -> None:
    was = guarded(database_file)

    with pytest.raises(sqlite3.DatabaseError, match=r"only grows|no such place"):
        bare.execute(statement)

    assert guarded(database_file) == was


def test_the_next_entry_in_the_chain_is_all_that_is_let_in(bare: sqlite3.Connection) -> None:
    bare.execute(placed(3, "new", "SELECT hash FROM decision WHERE pos = 2"))

    assert bare.execute("SELECT max(pos) FROM decision").fetchone() == (3,)


def test_the_first_entry_is_number_one(bare: sqlite3.Connection, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "empty.db")
    for (sql,) in bare.execute("SELECT sql FROM sqlite_master WHERE tbl_name = 'decision'"):
        other.execute(sql or "SELECT 1")

    with pytest.raises(sqlite3.DatabaseError, match="no such place"):
        other.execute(placed(2, "new", "x'00'"))
    other.close()


def test_the_writer_s_other_tables_stay_writable(full: Engine) -> None:
    with full.begin() as db:
        db.exec_driver_sql("UPDATE checkpoint SET head = x'00'")
        db.exec_driver_sql("DELETE FROM node_twin")
