"""Whatever was changed behind our back is named by its place."""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from joulie_audit.chain.entries import Flaw, Part, Sharing, joined, spans_of, walk
from joulie_audit.chain.sequence_gaps import Counters, Hole
from joulie_audit.testing import Past, small_past_in
from joulie_audit.verify.verify import EVERYTHING, Report, unlogged, verify
from joulie_bus.events import Basis, FallbackAnswered, codec
from joulie_bus.events.codec import Envelope
from joulie_bus.streams.records import Message
from joulie_bus.testing import CLUSTER, ask
from joulie_projections.decision_log.entry import About, chain_hash, has_header, header
from joulie_projections.decision_log.heads import Head, Signer
from joulie_projections.history.history import Wanted
from joulie_projections.testing import Postgres, tamper

pytestmark = pytest.mark.anyio


async def verified(past: Past, *anchored: Head, part: Part = EVERYTHING, jobs: int = 1) -> Report:
    async with past.reading() as (history, _):
        sharing = Sharing(past.database, jobs)
        return verify(history, past.maker.signer.public, anchored, part, sharing)


async def test_a_log_that_is_what_was_written_has_no_flaw(small: Past) -> None:
    report = await verified(small)

    assert report == Report(entries=9, heads=2, batches=4, snapshots=0, holes=[], flaw=None)


async def test_an_empty_log_is_right(past: Past) -> None:
    assert await verified(past) == Report(0, 0, 0, 0, [], None)


CHANGES = {
    "a body": (
        "UPDATE decision SET body = prev WHERE pos = 4",
        Flaw(4, "the body of entry 4 is not the one that was hashed"),
    ),
    "a hash": (
        "UPDATE decision SET hash = prev WHERE pos = 4",
        Flaw(4, "the body of entry 4 is not the one that was hashed"),
    ),
    "a link": (
        "UPDATE decision SET prev = hash WHERE pos = 4",
        Flaw(4, "entry 4 does not follow the entry before it"),
    ),
    "an entry taken out": (
        "DELETE FROM decision WHERE pos = 4",
        Flaw(4, "entry 4 is missing; the log goes on at 5"),
    ),
    "a signature": (
        "UPDATE head SET signature = hash WHERE pos = 7",
        Flaw(7, "the signature of the head at 7 is not ours"),
    ),
    "a signed moment": (
        "UPDATE head SET signed_at = signed_at + 1 WHERE pos = 9",
        Flaw(9, "the signature of the head at 9 is not ours"),
    ),
    "a manifest": (
        "UPDATE batch SET state_digest = head WHERE p_to = 12",
        Flaw(9, "the manifest at 9 is not the one that was chained"),
    ),
    "a manifest taken out": (
        "DELETE FROM batch WHERE p_to = 12",
        Flaw(9, "positions 9 to 12 are missing"),
    ),
    "the checkpoint": (
        "UPDATE checkpoint SET head = inputs WHERE name = 'projector'",
        Flaw(23, "the checkpoint and the last manifest do not fit together"),
    ),
}


@pytest.mark.parametrize(("statement", "flaw"), CHANGES.values(), ids=CHANGES)
async def test_a_change_is_named_by_its_place(either: Past, statement: str, flaw: Flaw) -> None:
    tamper(either.database, statement)

    report = await verified(either)

    assert report.flaw == flaw


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [2, 3, 5, 9])
@pytest.mark.parametrize("statement", [*(statement for statement, _ in CHANGES.values()), ""])
async def test_a_walk_that_is_shared_ends_where_one_alone_would(
    small: Past, statement: str, jobs: int
) -> None:
    if statement:
        tamper(small.database, statement)
    async with small.reading() as (history, _):
        alone = walk(history, EVERYTHING, {7, 9})
        spans = spans_of(EVERYTHING, history.tip(), jobs)
        shared = joined([walk(history, span, {7, 9}) for span in spans], spans)

    assert (len(spans), spans[0].first, spans[-1].last) == (jobs, 1, 9)
    assert shared[:2] == alone[:2]
    assert shared.flaw == alone.flaw
    assert shared.counters.holes() == alone.counters.holes()


@pytest.mark.slow
@pytest.mark.parametrize("change", ["a body", "an entry taken out", "a signature", "a manifest"])
async def test_several_processes_name_the_place_that_one_does(small: Past, change: str) -> None:
    statement, flaw = CHANGES[change]
    tamper(small.database, statement)

    shared = await verified(small, jobs=3)

    assert shared == await verified(small)
    assert shared.flaw == flaw


@pytest.mark.slow
async def test_several_processes_find_nothing_in_a_whole_log(small: Past) -> None:
    shared = await verified(small, jobs=3)

    assert shared == await verified(small)
    assert shared.flaw is None


async def test_any_flipped_byte_of_any_snapshot_is_named(small: Past) -> None:
    at = small.maker.snapshot()
    assert (await verified(small))[3:6] == (1, [], None)
    tamper(small.database, "UPDATE snapshot SET body = CAST(substr(body, 1, 50) || 'x' AS BLOB)")

    report = await verified(small)

    what = f"the snapshot at position {at} is not the one that was kept"
    assert report.flaw == Flaw(at, what)


async def test_a_snapshot_of_another_place_in_the_chain_is_named(small: Past) -> None:
    at = small.maker.snapshot()
    tamper(small.database, f"UPDATE snapshot SET position = {at - 1}")

    report = await verified(small)

    assert report.flaw is not None
    assert report.flaw.place == at - 1


async def test_any_flipped_byte_of_any_body_is_found(small: Past) -> None:
    async with small.reading() as (history, _):
        bodies = {entry.pos: entry.body for entry in history.entries()}
    for pos, body in bodies.items():
        at = (pos * 7919) % len(body)
        changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        tamper(small.database, "UPDATE decision SET body = ? WHERE pos = ?", changed, pos)

        assert (await verified(small)).flaw is not None
        tamper(small.database, "UPDATE decision SET body = ? WHERE pos = ?", body, pos)

    assert (await verified(small)).flaw is None


async def test_an_entry_that_was_rewritten_with_its_hash_breaks_the_next_link(small: Past) -> None:
    async with small.reading() as (history, _):
        entry = next(history.entries(4, 4))
    message = codec.seal(replace(codec.open_envelope(entry.message, "entry"), ts=1))
    body = header(entry.about) + message
    statement = "UPDATE decision SET body = ?, hash = ? WHERE pos = 4"
    tamper(small.database, statement, body, chain_hash(entry.prev, body))

    report = await verified(small)

    assert report.flaw == Flaw(5, "entry 5 does not follow the entry before it")


async def test_an_entry_that_was_given_another_number_is_missed_at_its_own(small: Past) -> None:
    tamper(small.database, "UPDATE decision SET pos = 19 WHERE pos = 9")

    report = await verified(small)

    assert report.flaw == Flaw(9, "entry 9 is missing; the log goes on at 19")


async def test_a_log_that_was_cut_off_is_found_by_a_head_that_was_kept(small: Past) -> None:
    async with small.reading() as (history, _):
        kept = history.heads()[-1]
    for table in ("decision", "head"):
        tamper(small.database, f"DELETE FROM {table} WHERE pos > 7")

    report = await verified(small, kept)

    assert report.flaw == Flaw(8, "a signed head speaks of entry 9, but the log ends at 7")


async def test_the_heads_of_another_log_are_not_ours(small: Past, tmp_path: Path) -> None:
    stranger = Signer.of(tmp_path / "other.key").sign(7, bytes(32), 1)

    report = await verified(small, stranger)

    assert report.flaw == Flaw(7, "the signature of the head at 7 is not ours")


# --- a part of it -----------------------------------------------------------------------------


async def test_a_part_hangs_on_the_entry_before_it(small: Past) -> None:
    report = await verified(small, part=Part(4, 8))

    assert report == Report(5, 2, 0, 0, [], None)


async def test_a_part_finds_what_is_in_it_and_nothing_else(small: Past) -> None:
    tamper(small.database, "UPDATE decision SET body = prev WHERE pos = 3")

    inside, behind = await verified(small, part=Part(2, 5)), await verified(small, part=Part(4, 9))

    assert inside.flaw == Flaw(3, "the body of entry 3 is not the one that was hashed")
    assert behind.flaw is None


# --- what entries are found by ----------------------------------------------------------------

OTHER: dict[str, object] = {
    "event_id": "extender-9:b1:4",
    "kind": "decision.filter",
    "pod_uid": "other",
    "pod": "team/other",
    "view_position": 1,
    "decided_at": 1,
}


@pytest.mark.parametrize("column", About._fields)
async def test_a_column_of_postgres_that_says_other_than_its_entry_is_named(
    postgres: Postgres, tmp_path: Path, column: str
) -> None:
    async with small_past_in(postgres.migrated(), tmp_path) as past:
        tamper(past.database, f"UPDATE decision SET {column} = ? WHERE pos = 5", OTHER[column])

        report = await verified(past)

    assert report.flaw == Flaw(5, f"the column {column} of entry 5 is not what its body says")


@pytest.mark.parametrize("column", About._fields)
async def test_a_column_of_sqlite_cannot_be_changed_at_all(small: Past, column: str) -> None:
    with pytest.raises(sqlite3.OperationalError, match="cannot UPDATE generated column"):
        tamper(small.database, f"UPDATE decision SET {column} = {column}")


async def test_what_sqlite_finds_an_entry_by_is_hashed_with_it(small: Past) -> None:
    tamper(
        small.database,
        "UPDATE decision SET body = CAST(replace(body, 'team/', 'work/') AS BLOB) WHERE pos = 5",
    )

    async with small.reading() as (history, _):
        found = history.entry(5)
    assert found is not None
    assert found.pod.startswith("work/")
    assert (await verified(small)).flaw == Flaw(
        5, "the body of entry 5 is not the one that was hashed"
    )


async def test_what_is_put_beside_an_entry_with_a_header_changes_nothing(small: Past) -> None:
    async with small.reading() as (history, _):
        was = list(history.entries())

    tamper(
        small.database, "UPDATE decision SET beside = ?", header(About("a", "b", "c", "d", 5, 6))
    )

    async with small.reading() as (history, _):
        assert list(history.entries()) == was
    assert (await verified(small)).flaw is None


NONSENSE = ["@", "@\n", "@0022003300440055", "@-001" * 9, f"@{'9' * 200}"]


@pytest.mark.parametrize("nonsense", NONSENSE)
async def test_a_header_that_is_nonsense_stops_nobody_and_is_named(
    small: Past, nonsense: str
) -> None:
    tamper(small.database, "UPDATE decision SET body = ? WHERE pos = 5", nonsense.encode())

    async with small.reading() as (history, _):
        found = [entry.pos for entry in history.find(Wanted(namespace="team"))]
        assert found == [9, 8, 7, 6, 4, 3, 2]
        assert len(list(history.entries())) == 9
    assert (await verified(small)).flaw == Flaw(
        5, "the body of entry 5 is not the one that was hashed"
    )


async def test_bytes_that_are_no_text_stop_nobody_and_are_named(small: Past) -> None:
    async with small.reading() as (history, _):
        entry = history.entry(5)
    assert entry is not None
    body = entry.body.replace(b"team/", b"te\xffm/", 1)
    tamper(small.database, "UPDATE decision SET body = ? WHERE pos = 5", body)

    async with small.reading() as (history, _):
        assert [entry.pod[:5] for entry in history.entries(5, 6)] == ["te\ufffdm/", "team/"]
    assert (await verified(small)).flaw == Flaw(
        5, "the body of entry 5 is not the one that was hashed"
    )


@pytest.mark.parametrize("column", ["body", "prev", "hash"])
async def test_bytes_that_are_said_to_be_text_are_named(small: Past, column: str) -> None:
    """One bit in the file makes one of the other."""
    tamper(small.database, f"UPDATE decision SET {column} = CAST({column} AS TEXT) WHERE pos = 5")

    report = await verified(small)

    assert report.flaw is not None
    assert report.flaw.place == 5


async def test_whoever_wants_it_to_stop_is_heard(small: Past) -> None:
    def look(*_: object) -> bool:
        raise KeyboardInterrupt

    async with small.reading() as (history, _):
        with pytest.raises(KeyboardInterrupt):
            history.look_through(1, 9, look)


@pytest.mark.parametrize("nonsense", NONSENSE)
async def test_nonsense_that_was_hashed_is_named_by_the_head_that_signed_another(
    small: Past, nonsense: str
) -> None:
    async with small.reading() as (history, _):
        entry = history.entry(9)
    assert entry is not None
    body = nonsense.encode()
    statement = "UPDATE decision SET body = ?, hash = ? WHERE pos = 9"
    tamper(small.database, statement, body, chain_hash(entry.prev, body))

    report = await verified(small)

    assert report.flaw == Flaw(9, "entry 9 is not the one that was signed")


async def test_columns_that_are_made_otherwise_are_named(small: Past) -> None:
    column = "pod TEXT NOT NULL GENERATED ALWAYS AS ("
    with contextlib.closing(sqlite3.connect(small.database)) as db, db:
        db.execute("PRAGMA writable_schema = on")
        changed = "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = 'decision'"
        db.execute(changed, (column, f"{column}'x' || "))

    async with small.reading() as (history, _):
        assert {entry.pod[0] for entry in history.entries()} == {"x"}
    assert (await verified(small)).flaw == Flaw(
        0, "the table of decisions was redefined: its columns are not what bodies say"
    )


# --- entries without headers ------------------------------------------------------------------


async def test_a_log_from_before_headers_has_no_flaw(older: Past) -> None:
    async with older.reading() as (history, _):
        assert not any(map(has_header, (entry.body for entry in history.entries())))

    assert await verified(older) == Report(9, 2, 4, 0, [], None)


async def test_a_name_that_fits_no_header_is_no_flaw_of_an_entry_from_before(older: Past) -> None:
    """Nor has a producer looked at such names then."""
    data = msgspec.Raw(
        msgspec.msgpack.encode(
            FallbackAnswered(
                pod_uid="u",
                namespace="team",
                name="tab\tname",
                verb="filter",
                why="overdue",
                answer="open",
                candidates=1,
                basis=Basis(view=0, view_age_ms=0, now=1, settings="s"),
            )
        )
    )
    envelope = Envelope(
        id="extender-0:b0:1", type=FallbackAnswered.TYPE, v=1, key="u", ts=1, data=data
    )
    subject = CLUSTER.decisions("extender-0")
    await older.maker.bus.publish([Message(subject, "odd", codec.seal(envelope))])
    await older.maker.say()

    assert (await verified(older)).flaw is None


async def test_a_log_that_got_headers_on_its_way_has_no_flaw(older: Past) -> None:
    older.maker.headers = True
    await older.maker.answer(ask("today"))
    older.maker.drop()
    await older.maker.answer(ask("later"))

    report = await verified(older)

    assert report == Report(13, 2, 4, 0, [Hole("extender-0:b1", 12, 12)], None)


@pytest.mark.parametrize(("at", "column"), [*enumerate(About._fields)], ids=About._fields)
async def test_what_stands_beside_an_entry_is_compared_with_what_it_says(
    older: Past, at: int, column: str
) -> None:
    async with older.reading() as (history, _):
        entry = history.entry(5)
    assert entry is not None
    if isinstance(older.database, Path):
        other = About._make([*entry.about[:at], OTHER[column], *entry.about[at + 1 :]])
        tamper(older.database, "UPDATE decision SET beside = ? WHERE pos = 5", header(other))
    else:
        tamper(older.database, f"UPDATE decision SET {column} = ? WHERE pos = 5", OTHER[column])

    report = await verified(older)

    assert report.flaw == Flaw(5, f"the column {column} of entry 5 is not what its body says")


async def test_an_entry_that_nothing_stands_beside_is_named(older: Past) -> None:
    if not isinstance(older.database, Path):
        pytest.skip("PostgreSQL keeps columns, and none of them may be empty")
    tamper(older.database, "UPDATE decision SET beside = NULL WHERE pos = 5")

    report = await verified(older)

    assert report.flaw == Flaw(5, "the column event_id of entry 5 is not what its body says")


# --- producers' numbers -----------------------------------------------------------------------


async def test_a_number_that_never_came_is_told_as_a_drop_and_is_no_flaw(small: Past) -> None:
    small.maker.drop()
    small.maker.drop()
    await small.maker.answer(ask("after"))

    report = await verified(small)

    assert (report.holes, report.flaw) == ([Hole("extender-0:b1", 10, 11)], None)
    assert str(report.holes[0]) == (
        "numbers 10 to 11 of extender-0:b1 never came: 2 dropped before they were logged"
    )


def test_what_the_stream_still_holds_was_no_drop() -> None:
    hole = Hole("extender-0:b1", 10, 11)

    assert unlogged([hole], {"extender-0:b1:12": 90}) is None
    assert unlogged([hole], {"extender-0:b1:11": 91}) == Flaw(
        0, "extender-0:b1:11 is #91 of the stream and not in the log"
    )


def counted(*ids: str, from_one: bool = True) -> list[Hole]:
    return counters_of(ids, from_one=from_one).holes()


def counters_of(ids: Sequence[str], *, from_one: bool) -> Counters:
    counters = Counters(from_one=from_one)
    counters.seen(event_id.encode() for event_id in ids)
    return counters


@pytest.mark.parametrize(
    ("ids", "holes"),
    [
        pytest.param(["a:1:1", "a:1:2"], [], id="without a hole"),
        pytest.param(["a:1:2"], [Hole("a:1", 1, 1)], id="the first never came"),
        pytest.param(["a:1:1", "a:1:3", "a:1:2"], [], id="late is not lost"),
        pytest.param(["a:1:1", "a:2:1"], [], id="another life counts anew"),
        pytest.param(["a:1:1", "b:1:2"], [Hole("b:1", 1, 1)], id="each replica for itself"),
        pytest.param(["unreadable:7", "unreadable:9"], [], id="nobody numbered these"),
        pytest.param(["a:1:x"], [], id="no number at all"),
        pytest.param(
            ["a:1:1", "a:1:3", "a:1:6"], [Hole("a:1", 2, 2), Hole("a:1", 4, 5)], id="two runs"
        ),
    ],
)
def test_holes(ids: list[str], holes: list[Hole]) -> None:
    assert counted(*ids) == holes


def test_a_part_of_a_log_cannot_tell_what_was_before_it() -> None:
    ids = ["a:1:50", "a:1:52", "a:1:48"]

    assert counted(*ids, from_one=False) == [Hole("a:1", 51, 51)]


@settings(deadline=None, max_examples=100)
@given(st.permutations(range(1, 9)), st.integers(1, 7))
def test_the_holes_are_what_did_not_come_in_whatever_order(order: list[int], lost: int) -> None:
    came = [f"a:1:{number}" for number in order if number != lost]

    assert counted(*came) == [Hole("a:1", lost, lost)]


numbered = st.lists(st.builds("{}:1:{}".format, st.sampled_from("ab"), st.integers(1, 9)))


@settings(deadline=None, max_examples=100)
@given(numbered, st.integers(0, 20), st.booleans())
def test_counters_that_are_cut_anywhere_find_the_same_holes(
    ids: list[str], cut: int, from_one: bool
) -> None:
    counters = counters_of(ids[:cut], from_one=from_one)
    counters.go_on(counters_of(ids[cut:], from_one=False))

    assert counters.holes() == counted(*ids, from_one=from_one)
