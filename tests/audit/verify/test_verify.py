"""Every change to the log is reported with its position."""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from audit_kit import RecordedLog, small_log_in
from bus_kit import ask, decided
from bus_kit.stamping import producer
from joulie_audit.chain.entries import (
    EntryRange,
    Flaw,
    WorkerOptions,
    join_walks,
    split_range,
    walk,
)
from joulie_audit.verify.unsigned import as_json
from joulie_audit.verify.verify import ALL_ENTRIES, Report, verify
from joulie_bus.events import codec
from joulie_bus.streams.records import Record
from joulie_projections.chain.entry import (
    Entry,
    EntryFields,
    chain_hash,
    entry_of,
    header_of,
    message_in,
)
from joulie_projections.chain.sequence_gaps import Gap, SequenceNumbers
from joulie_projections.decision_log.heads import Head, Signer
from joulie_projections.history.history import EntryQuery
from projections_kit import Postgres, tamper
from signed_heads import head_at

pytestmark = pytest.mark.anyio


async def verified(
    recorded: RecordedLog, *anchored: Head, entry_range: EntryRange = ALL_ENTRIES, jobs: int = 1
) -> Report:
    async with recorded.reading() as (history, _):
        workers = WorkerOptions(recorded.database, jobs)
        return verify(history, recorded.builder.signer.public, anchored, entry_range, workers)


async def test_an_unchanged_log_has_no_flaw(small_log: RecordedLog) -> None:
    report = await verified(small_log)

    assert report == Report(entries=9, heads=2, batches=4, snapshots=0, gaps=[], flaw=None)


async def test_an_empty_log_has_no_flaw(recorded: RecordedLog) -> None:
    assert await verified(recorded) == Report(0, 0, 0, 0, [], None)


CHANGES = {
    "a body": (
        "UPDATE decision SET body = prev WHERE pos = 4",
        Flaw(4, "the body of entry 4 does not match its hash"),
    ),
    "a hash": (
        "UPDATE decision SET hash = prev WHERE pos = 4",
        Flaw(4, "the body of entry 4 does not match its hash"),
    ),
    "a link": (
        "UPDATE decision SET prev = hash WHERE pos = 4",
        Flaw(4, "entry 4 does not link to the entry before it"),
    ),
    "a removed entry": (
        "DELETE FROM decision WHERE pos = 4",
        Flaw(4, "entry 4 is missing; the next entry is 5"),
    ),
    "every head": (
        "UPDATE head SET note = hash",
        Flaw(0, "no key of this log signed any of its 2 heads: is the key another one?"),
    ),
    "a manifest": (
        "UPDATE batch SET state_digest = head WHERE p_to = 12",
        Flaw(9, "the manifest at 9 does not match its chain hash"),
    ),
    "a removed manifest": (
        "DELETE FROM batch WHERE p_to = 12",
        Flaw(9, "positions 9 to 12 are missing"),
    ),
    "the checkpoint": (
        "UPDATE checkpoint SET head = inputs WHERE name = 'projector'",
        Flaw(23, "the checkpoint does not match the last manifest"),
    ),
}


@pytest.mark.parametrize(("statement", "flaw"), CHANGES.values(), ids=CHANGES)
async def test_a_change_is_reported_with_its_position(
    any_database: RecordedLog, statement: str, flaw: Flaw
) -> None:
    tamper(any_database.database, statement)

    report = await verified(any_database)

    assert report.flaw == flaw


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [2, 3, 5, 9])
@pytest.mark.parametrize("statement", [*(statement for statement, _ in CHANGES.values()), ""])
async def test_a_parallel_walk_ends_where_a_single_walk_does(
    small_log: RecordedLog, statement: str, jobs: int
) -> None:
    if statement:
        tamper(small_log.database, statement)
    async with small_log.reading() as (history, _):
        alone = walk(history, ALL_ENTRIES, {7, 9})
        spans = split_range(ALL_ENTRIES, history.tip(), jobs)
        shared = join_walks([walk(history, span, {7, 9}) for span in spans], spans)

    assert (len(spans), spans[0].first, spans[-1].last) == (jobs, 1, 9)
    assert shared[:2] == alone[:2]
    assert shared.flaw == alone.flaw
    assert shared.numbers.gaps() == alone.numbers.gaps()


@pytest.mark.slow
@pytest.mark.parametrize("change", ["a body", "a removed entry", "every head", "a manifest"])
async def test_worker_processes_report_the_same_position(
    small_log: RecordedLog, change: str
) -> None:
    statement, flaw = CHANGES[change]
    tamper(small_log.database, statement)

    shared = await verified(small_log, jobs=3)

    assert shared == await verified(small_log)
    assert shared.flaw == flaw


@pytest.mark.slow
async def test_worker_processes_find_no_flaw_in_an_unchanged_log(small_log: RecordedLog) -> None:
    shared = await verified(small_log, jobs=3)

    assert shared == await verified(small_log)
    assert shared.flaw is None


async def test_a_changed_snapshot_is_reported(small_log: RecordedLog) -> None:
    at = small_log.builder.snapshot()
    assert (await verified(small_log))[3:6] == (1, [], None)
    tamper(
        small_log.database, "UPDATE snapshot SET body = CAST(substr(body, 1, 50) || 'x' AS BLOB)"
    )

    report = await verified(small_log)

    what = f"the snapshot at position {at} is corrupted"
    assert report.flaw == Flaw(at, what)


async def test_a_snapshot_at_another_position_is_reported(small_log: RecordedLog) -> None:
    at = small_log.builder.snapshot()
    tamper(small_log.database, f"UPDATE snapshot SET position = {at - 1}")

    report = await verified(small_log)

    assert report.flaw is not None
    assert report.flaw.place == at - 1


async def test_any_flipped_byte_of_any_body_is_found(small_log: RecordedLog) -> None:
    async with small_log.reading() as (history, _):
        bodies = {entry.pos: entry.body for entry in history.entries()}
    for pos, body in bodies.items():
        at = (pos * 7919) % len(body)
        changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        tamper(small_log.database, "UPDATE decision SET body = ? WHERE pos = ?", changed, pos)

        assert (await verified(small_log)).flaw is not None
        tamper(small_log.database, "UPDATE decision SET body = ? WHERE pos = ?", body, pos)

    assert (await verified(small_log)).flaw is None


async def test_an_entry_rewritten_with_its_hash_breaks_the_next_link(
    small_log: RecordedLog,
) -> None:
    async with small_log.reading() as (history, _):
        entry = next(history.entries(4, 4))
    message = codec.seal(replace(codec.open_envelope(entry.message, "entry"), ts=1))
    body = header_of(entry.fields) + message
    statement = "UPDATE decision SET body = ?, hash = ? WHERE pos = 4"
    tamper(small_log.database, statement, body, chain_hash(entry.prev, body))

    report = await verified(small_log)

    assert report.flaw == Flaw(5, "entry 5 does not link to the entry before it")


async def test_a_renumbered_entry_is_missing_at_its_own_number(
    small_log: RecordedLog,
) -> None:
    tamper(small_log.database, "UPDATE decision SET pos = 19 WHERE pos = 9")

    report = await verified(small_log)

    assert report.flaw == Flaw(9, "a signed head covers entry 9, but the log ends at 8")
    assert report.notes == (
        "ignored 1 row behind the end of the log, which the projector did not take",
    )
    nothing = {"unsigned_heads": 0, "manifests": 0, "moved": 0, "rows": []}
    assert as_json(report.others) == {"behind": 1, **nothing}


async def test_a_truncated_log_is_detected_by_an_anchored_head(
    small_log: RecordedLog,
) -> None:
    async with small_log.reading() as (history, _):
        kept = history.heads()[-1]
    for table in ("decision", "head"):
        tamper(small_log.database, f"DELETE FROM {table} WHERE pos > 7")

    report = await verified(small_log, kept)

    assert report.flaw == Flaw(8, "a signed head covers entry 9, but the log ends at 7")


async def test_a_head_of_another_log_is_a_flaw(small_log: RecordedLog, tmp_path: Path) -> None:
    foreign_head = head_at(Signer.of(tmp_path / "other.key"), 7, bytes(32))

    report = await verified(small_log, foreign_head)

    assert report.flaw == Flaw(7, "the head at 7 is not signed by a key of this log")


# --- a range of entries -----------------------------------------------------------------------


async def test_a_range_links_to_the_entry_before_it(small_log: RecordedLog) -> None:
    report = await verified(small_log, entry_range=EntryRange(4, 8))

    assert report == Report(5, 2, 0, 0, [], None)


async def test_a_range_finds_only_its_own_flaws(small_log: RecordedLog) -> None:
    tamper(small_log.database, "UPDATE decision SET body = prev WHERE pos = 3")

    inside, after_cut = (
        await verified(small_log, entry_range=EntryRange(2, 5)),
        await verified(small_log, entry_range=EntryRange(4, 9)),
    )

    assert inside.flaw == Flaw(3, "the body of entry 3 does not match its hash")
    assert after_cut.flaw is None


# --- columns ----------------------------------------------------------------------------------

OTHER: dict[str, object] = {
    "event_id": "extender-9:b1:4",
    "kind": "decision.filter",
    "pod_uid": "other",
    "pod": "team/other",
    "view_position": 1,
    "decided_at": 1,
}


@pytest.mark.parametrize("column", EntryFields._fields)
async def test_a_changed_column_in_postgres_is_reported(
    postgres: Postgres, tmp_path: Path, column: str
) -> None:
    async with small_log_in(postgres.migrated(), tmp_path) as recorded:
        tamper(recorded.database, f"UPDATE decision SET {column} = ? WHERE pos = 5", OTHER[column])

        report = await verified(recorded)

    assert report.flaw == Flaw(5, f"the column {column} of entry 5 does not match its body")


@pytest.mark.parametrize("column", EntryFields._fields)
async def test_a_column_of_sqlite_cannot_be_changed_at_all(
    small_log: RecordedLog, column: str
) -> None:
    with pytest.raises(sqlite3.OperationalError, match="cannot UPDATE generated column"):
        tamper(small_log.database, f"UPDATE decision SET {column} = {column}")


async def test_the_generated_columns_of_sqlite_are_covered_by_the_hash(
    small_log: RecordedLog,
) -> None:
    tamper(
        small_log.database,
        "UPDATE decision SET body = CAST(replace(body, 'team/', 'work/') AS BLOB) WHERE pos = 5",
    )

    async with small_log.reading() as (history, _):
        found = history.entry(5)
    assert found is not None
    assert found.pod.startswith("work/")
    assert (await verified(small_log)).flaw == Flaw(
        5, "the body of entry 5 does not match its hash"
    )


NONSENSE = ["@", "@\n", "@0022003300440055", "@-001" * 9, f"@{'9' * 200}"]


@pytest.mark.parametrize("nonsense", NONSENSE)
async def test_an_invalid_header_stops_no_reader_and_is_reported(
    small_log: RecordedLog, nonsense: str
) -> None:
    tamper(small_log.database, "UPDATE decision SET body = ? WHERE pos = 5", nonsense.encode())

    async with small_log.reading() as (history, _):
        found = [entry.pos for entry in history.find(EntryQuery(namespace="team"))]
        assert found == [9, 8, 7, 6, 4, 3, 2]
        assert len(list(history.entries())) == 9
    assert (await verified(small_log)).flaw == Flaw(
        5, "the body of entry 5 does not match its hash"
    )


async def test_invalid_text_stops_no_reader_and_is_reported(small_log: RecordedLog) -> None:
    async with small_log.reading() as (history, _):
        entry = history.entry(5)
    assert entry is not None
    body = entry.body.replace(b"team/", b"te\xffm/", 1)
    tamper(small_log.database, "UPDATE decision SET body = ? WHERE pos = 5", body)

    async with small_log.reading() as (history, _):
        assert [entry.pod[:5] for entry in history.entries(5, 6)] == ["te\ufffdm/", "team/"]
    assert (await verified(small_log)).flaw == Flaw(
        5, "the body of entry 5 does not match its hash"
    )


@pytest.mark.parametrize("column", ["body", "prev", "hash"])
async def test_bytes_stored_as_text_are_reported(small_log: RecordedLog, column: str) -> None:
    """A single bit in the file changes the type of a value."""
    tamper(
        small_log.database, f"UPDATE decision SET {column} = CAST({column} AS TEXT) WHERE pos = 5"
    )

    report = await verified(small_log)

    assert report.flaw is not None
    assert report.flaw.place == 5


async def test_an_interrupt_ends_the_walk(small_log: RecordedLog) -> None:
    def look(*_: object) -> bool:
        raise KeyboardInterrupt

    async with small_log.reading() as (history, _):
        with pytest.raises(KeyboardInterrupt):
            history.check_entries(1, 9, look)


async def test_an_error_of_a_check_is_that_error_and_no_interrupt(small_log: RecordedLog) -> None:
    def look(*_: object) -> bool:
        raise ZeroDivisionError("a mistake in the check")

    async with small_log.reading() as (history, _):
        with pytest.raises(ZeroDivisionError, match="a mistake in the check"):
            history.check_entries(1, 9, look)


@pytest.mark.parametrize("nonsense", NONSENSE)
async def test_an_invalid_entry_with_a_matching_hash_differs_from_its_signed_head(
    small_log: RecordedLog, nonsense: str
) -> None:
    async with small_log.reading() as (history, _):
        entry = history.entry(9)
    assert entry is not None
    body = nonsense.encode()
    statement = "UPDATE decision SET body = ?, hash = ? WHERE pos = 9"
    tamper(small_log.database, statement, body, chain_hash(entry.prev, body))

    report = await verified(small_log)

    assert report.flaw == Flaw(9, "entry 9 does not match its signed head")


async def test_redefined_columns_are_reported(small_log: RecordedLog) -> None:
    column = "pod TEXT NOT NULL GENERATED ALWAYS AS ("
    with contextlib.closing(sqlite3.connect(small_log.database)) as db, db:
        db.execute("PRAGMA writable_schema = on")
        changed = "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = 'decision'"
        db.execute(changed, (column, f"{column}'x' || "))

    async with small_log.reading() as (history, _):
        assert {entry.pod[0] for entry in history.entries()} == {"x"}
    assert (await verified(small_log)).flaw == Flaw(
        0, "the table of decisions was redefined: its columns do not come from the bodies"
    )


async def test_an_entry_without_a_header_is_reported(small_log: RecordedLog) -> None:
    """Its columns are those of no body."""
    message = decided("web")
    await small_log.builder.write([producer("extender-9").stamp(message)], without_header)

    report = await verified(small_log)

    assert report.flaw == Flaw(10, "entry 10: the body does not begin with a header")


def without_header(record: Record) -> Entry:
    made = entry_of(record)
    return made._replace(body=message_in(made.body))


# --- sequence numbers -------------------------------------------------------------------------


async def test_a_missing_number_is_reported_as_a_gap_and_is_no_flaw(
    small_log: RecordedLog,
) -> None:
    small_log.builder.skip_number()
    small_log.builder.skip_number()
    await small_log.builder.answer(ask("after"))

    report = await verified(small_log)

    assert (report.gaps, report.flaw) == ([Gap("extender-0:b1", 10, 11)], None)
    assert str(report.gaps[0]) == (
        "numbers 10 to 11 of extender-0:b1 are missing: 2 dropped before they were logged"
    )


def counted(*ids: str, from_one: bool = True) -> list[Gap]:
    return numbers_of(ids, from_one=from_one).gaps()


def numbers_of(ids: Sequence[str], *, from_one: bool) -> SequenceNumbers:
    numbers = SequenceNumbers(from_one=from_one)
    numbers.add([event_id.encode() for event_id in ids], [b""] * len(ids))
    return numbers


@pytest.mark.parametrize(
    ("ids", "gaps"),
    [
        pytest.param(["a:1:1", "a:1:2"], [], id="no gap"),
        pytest.param(["a:1:2"], [Gap("a:1", 1, 1)], id="the first is missing"),
        pytest.param(["a:1:1", "a:1:3", "a:1:2"], [], id="out of order"),
        pytest.param(["a:1:1", "a:2:1"], [], id="another boot starts at one"),
        pytest.param(["a:1:1", "b:1:2"], [Gap("b:1", 1, 1)], id="each replica counts alone"),
        pytest.param(["unreadable:7", "unreadable:9"], [], id="unreadable entries have no number"),
        pytest.param(["a:1:x"], [], id="not a number"),
        pytest.param(
            ["a:1:1", "a:1:3", "a:1:6"], [Gap("a:1", 2, 2), Gap("a:1", 4, 5)], id="two gaps"
        ),
    ],
)
def test_gaps_are_found(ids: list[str], gaps: list[Gap]) -> None:
    assert counted(*ids) == gaps


def test_a_range_reports_no_gap_before_its_first_number() -> None:
    ids = ["a:1:50", "a:1:52", "a:1:48"]

    assert counted(*ids, from_one=False) == [Gap("a:1", 51, 51)]


@settings(deadline=None, max_examples=100)
@given(st.permutations(range(1, 9)), st.integers(1, 7))
def test_gaps_do_not_depend_on_the_order_of_numbers(order: list[int], lost: int) -> None:
    came = [f"a:1:{number}" for number in order if number != lost]

    assert counted(*came) == [Gap("a:1", lost, lost)]


numbered = st.lists(st.builds("{}:1:{}".format, st.sampled_from("ab"), st.integers(1, 9)))


@settings(deadline=None, max_examples=100)
@given(numbered, st.integers(0, 20), st.booleans())
def test_split_sequence_numbers_find_the_same_gaps(
    ids: list[str], cut: int, from_one: bool
) -> None:
    numbers = numbers_of(ids[:cut], from_one=from_one)
    numbers.extend(numbers_of(ids[cut:], from_one=False))

    assert numbers.gaps() == counted(*ids, from_one=from_one)
