"""Trims delete archived data; readers with the archive see no difference."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine

import joulie_migrations
from audit_kit import RecordedLog, restore_into, small_log_in, written_archive
from bus_kit import CLUSTER, ask, power
from joulie_audit.archive.archived_facts import ArchivedFacts
from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.fact_source import StreamFacts, plan_facts
from joulie_audit.archive.parts import Archive
from joulie_audit.chain.entries import Flaw
from joulie_audit.questions.explain import explain_pod
from joulie_audit.replay.replay import ReplayReport, Scope, replay
from joulie_audit.retention.cut_points import CutOptions
from joulie_audit.retention.retention_risks import trim_due_s
from joulie_audit.verify.proof import prove
from joulie_audit.verify.verify import Report, verify
from joulie_audit.verify.verify_archive import ArchiveReport, verify_archive
from joulie_bus.errors import ArchiveBroken, NotInTheLog, NotTrimmed
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Stream
from joulie_projections.decision_log import heads
from joulie_projections.decision_log.heads import Head
from joulie_projections.fold.commit import Input
from joulie_projections.history.history import EntryQuery, History
from joulie_projections.history.trimming import TrimStore
from joulie_projections.projector.trim_streams import anchored_heads
from joulie_projections.store import database
from joulie_projections.store.database import Place
from projections_kit import tamper
from signed_heads import head_at
from state_at import cluster_state_at
from trim_kit import ArchiveTrim, Trim

pytestmark = pytest.mark.anyio
NO_LIMIT = 2**62


class ArchivedLog(NamedTuple):
    """A recorded log and its archive."""

    recorded: RecordedLog
    path: Path

    @property
    def public(self) -> Any:
        return self.recorded.builder.signer.public

    def trimmer(self, engine: Engine) -> ArchiveTrim:
        reading = Sources(self.recorded.database).reading
        return ArchiveTrim(Archive.of(self.path), TrimStore(engine), reading, self.public)

    async def archive(self) -> None:
        await written_archive(self.recorded, self.path)

    async def anchored(self) -> list[Head]:
        return await anchored_heads(self.recorded.builder.bus, 1000)

    async def trim(self, keep_s: float = 0.0) -> Trim:
        builder, engine = self.recorded.builder, database.trimmer(self.recorded.database)
        try:
            now = builder.clock()
            options = CutOptions(now - int(keep_s * 1e9), "test")
            return await self.trimmer(engine).run(builder.bus, await self.anchored(), options, now)
        finally:
            engine.dispose()

    async def readings(self) -> "Readings":
        """The results of all readers, with the archive."""
        with Sources(self.recorded.database, self.path).reading() as history:
            created = {stream: Input("", 0) for stream in Stream}
            async with StreamFacts.over(self.recorded.builder.bus, created) as streams:
                facts = ArchivedFacts(Archive.of(self.path), streams)
                done = await replay(history, facts)
                cluster_states = [await cluster_state_at(history, facts, at) for at in (8, 13)]
                plans = [found async for found in plan_facts(history, facts)]
            return Readings(
                done._replace(seconds=0),
                [cluster_state.nodes for cluster_state in cluster_states],
                plans,
                list(history.entries()),
                [entry.pos for entry in history.find(EntryQuery())],
                history.heads(),
                list(history.manifests()),
                list(history.manifests_back()),
                [explain_pod(history, f"team/{pod}").entries for pod in PODS],
                [prove(history, at, self.public) for at in (1, 4, 9)],
                history.commit_time_range(),
                [history.committed_at(at) for at in (1, 8, 9, 20)],
                history.quarantined(),
            )


class Readings(NamedTuple):
    replayed: ReplayReport
    cluster_states: list[Any]
    plans: list[Any]
    entries: list[Any]
    found: list[int]
    heads: list[Head]
    manifests: list[Any]
    back: list[Any]
    explained: list[list[int]]
    proofs: list[Any]
    between: tuple[int, int] | None
    at: list[int | None]
    dead: list[Any]


PODS = ("early-1", "early-2", "late-1", "late-2")


async def anchor(recorded: RecordedLog) -> None:
    """Publishes the heads, as the projector does."""
    with History.of(recorded.database) as history:
        signed = history.heads()
    for head in signed:
        message = Message(CLUSTER.heads, f"head:{head.pos}", heads.encode(head))
        await recorded.builder.bus.publish([message])


async def extend_log(recorded: RecordedLog) -> None:
    """Adds to the small log: two snapshots, a quarantined fact, another pod."""
    builder = recorded.builder
    builder.snapshot()
    await builder.quarantined_facts(power("n1", 777))
    await builder.facts(*(power(name, 150) for name in ("n1", "n2", "n3")), after_s=3600)
    await builder.answer(ask("last"))
    builder.sign()
    builder.snapshot()
    await anchor(recorded)


@pytest.fixture(params=["database_file", "postgres"], ids=["sqlite", "postgres"])
async def archived(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    found = request.getfixturevalue(request.param)
    place: Place = found if isinstance(found, Path) else found.migrated()
    async with small_log_in(place, tmp_path) as recorded:
        await extend_log(recorded)
        made = ArchivedLog(recorded, tmp_path / "archive")
        await made.archive()
        yield made


async def checked(archived: ArchivedLog) -> Report:
    with History.of(archived.recorded.database) as history:
        return verify(history, archived.public, await archived.anchored())


def archive_checked(archived: ArchivedLog) -> ArchiveReport:
    with History.of(archived.recorded.database) as history:
        return verify_archive(Archive.of(archived.path), archived.public, history)


async def test_a_trim_changes_nothing_for_readers_with_the_archive(archived: ArchivedLog) -> None:
    before = await archived.readings()

    done = await archived.trim()
    after = await archived.readings()

    assert done.cut is not None
    assert done.is_new
    assert done.rows > 0
    assert {"JOULIE_TEL", "JOULIE_OBS", "JOULIE_DEC"} <= done.messages.keys()
    assert "JOULIE_HEADS" not in done.messages
    assert after == before
    assert (after.replayed.decisions, after.replayed.mismatches) == (10, 0)
    assert [proof.at + 1 for proof in after.proofs] == [1, 4, 9]


async def test_decisions_stay_that_a_restored_archive_would_read_again(
    archived: ArchivedLog, tmp_path: Path
) -> None:
    """The newest head of the archive names the last decision that was read for it."""
    builder = archived.recorded.builder
    await builder.answer(ask("unsigned"))  # the last part does not hold it
    later = ArchivedLog(archived.recorded, archived.path.with_name("later"))
    await later.archive()
    await later.trim()

    first = (await builder.bus.state(Stream.DEC)).first
    restored = database.migrator(tmp_path / "restored.db")
    joulie_migrations.upgrade(restored)
    restored.dispose()
    assert restore_into(later.path, tmp_path / "restored.db").entries == 11
    with History.of(tmp_path / "restored.db") as history:
        assert history.decisions_read().sequence == first == 11


async def test_what_follows_lost_messages_is_archived_and_trimmed(
    archived: ArchivedLog, tmp_path: Path
) -> None:
    """Else a broker and a database are full some day after an archiver was down for a day."""
    archived.recorded.builder.broker.trim(Stream.TEL, 4)
    later = ArchivedLog(archived.recorded, tmp_path / "later")
    await later.archive()

    done = await later.trim()

    assert done.cut is not None
    assert (done.rows > 0, archive_checked(later).flaw, archive_checked(later).lost) == (
        *(True, None),
        4,
    )
    assert (await checked(later)).flaw is None


async def test_a_trimmed_log_grows_and_is_trimmed_again(archived: ArchivedLog) -> None:
    first = await archived.trim()
    builder = archived.recorded.builder
    await builder.facts(*(power(name, 175) for name in ("n1", "n2", "n3", "n4")), after_s=7200)
    await builder.answer(ask("more"))
    builder.sign()
    builder.snapshot()
    await anchor(archived.recorded)
    await archived.archive()
    before = await archived.readings()

    second = await archived.trim()

    assert first.cut is not None
    assert second.cut is not None
    assert (second.cut.number, second.is_new) == (2, True)
    assert second.cut.pos > first.cut.pos
    assert second.cut.p_to > first.cut.p_to
    assert await archived.readings() == before
    assert (await checked(archived)).flaw is None
    assert archive_checked(archived).flaw is None


# --- verification -----------------------------------------------------------------------------


async def test_without_the_archive_verify_reports_the_unchecked_part(archived: ArchivedLog) -> None:
    done = await archived.trim()

    report = await checked(archived)

    assert done.cut is not None
    assert (report.flaw, report.cut) == (None, done.cut)
    assert report.entries == 11 - done.cut.pos


async def test_a_trimmed_log_and_its_archive_are_one_chain(archived: ArchivedLog) -> None:
    await archived.trim()

    assert archive_checked(archived).flaw is None


async def test_a_log_without_a_cut_has_no_unchecked_part(archived: ArchivedLog) -> None:
    assert (await checked(archived)).cut is None


FORGED = {
    "an unsigned hash": "UPDATE cut SET hash = manifest_head",
    "a signature of another head": "UPDATE cut SET note = hash",
    "an entry that is not there": "DELETE FROM decision WHERE pos = (SELECT pos FROM cut)",
    "another entry": "UPDATE cut SET pos = pos + 1",
    "another manifest": "UPDATE cut SET manifest_head = hash",
    "no cut at all": "DELETE FROM cut",
}


@pytest.mark.parametrize("statement", FORGED.values(), ids=FORGED.keys())
async def test_a_forged_cut_is_a_flaw(archived: ArchivedLog, statement: str) -> None:
    await archived.trim()
    tamper(archived.recorded.database, statement)

    assert (await checked(archived)).flaw is not None


async def test_rows_deleted_without_a_cut_are_a_flaw(archived: ArchivedLog) -> None:
    tamper(archived.recorded.database, "DELETE FROM decision WHERE pos < 5")

    assert (await checked(archived)).flaw == Flaw(1, "entry 1 is missing; the next entry is 5")


async def test_an_archive_that_ends_before_the_cut_is_a_flaw(
    archived: ArchivedLog, tmp_path: Path
) -> None:
    await archived.trim()
    (tmp_path / "other" / "log").mkdir(parents=True)
    other = archived._replace(path=tmp_path / "other")

    assert "it ends before entry" in str(archive_checked(other).flaw)
    with pytest.raises(NotInTheLog, match="before what was trimmed"):
        await other.readings()


async def test_a_trimmed_log_cannot_be_archived_to_a_new_archive(
    archived: ArchivedLog, tmp_path: Path
) -> None:
    await archived.trim()

    with pytest.raises(NotInTheLog, match="before what was trimmed"):
        await archived._replace(path=tmp_path / "new").archive()


async def test_an_anchored_head_of_another_entry_at_the_cut_is_a_flaw(
    archived: ArchivedLog,
) -> None:
    done = await archived.trim()
    assert done.cut is not None
    other = head_at(archived.recorded.builder.signer, done.cut.pos, bytes(32))
    with History.of(archived.recorded.database) as history:
        report = verify(history, archived.public, [other])

    assert report.flaw is not None
    assert report.flaw.place == done.cut.pos


async def test_an_anchored_head_before_the_cut_is_compared_with_the_archive(
    archived: ArchivedLog,
) -> None:
    await archived.trim()
    other = head_at(archived.recorded.builder.signer, 3, bytes(32))
    with History.of(archived.recorded.database) as history:
        report = verify_archive(Archive.of(archived.path), archived.public, history, [other])

    assert "entry 3 does not match its signed head" in str(report.flaw)


async def test_a_cut_that_names_another_part_of_the_archive_is_a_flaw(
    archived: ArchivedLog,
) -> None:
    await archived.trim()
    tamper(archived.recorded.database, "UPDATE cut SET log_seal = 'another'")

    assert "is not the part that the cut names" in str(archive_checked(archived).flaw)


# --- limits of a cut --------------------------------------------------------------------------


async def test_data_within_the_keep_window_stays(archived: ArchivedLog) -> None:
    done = await archived.trim(keep_s=1e6)

    assert (done.cut, done.rows, done.messages) == (None, 0, {})


async def test_the_keep_window_decides_which_head_is_the_cut(archived: ArchivedLog) -> None:
    done = await archived.trim(keep_s=1800)

    assert done.cut is not None
    assert done.cut.pos == 9  # the heads before the last hour are those of the small log


async def test_unarchived_data_stays(archived: ArchivedLog) -> None:
    builder = archived.recorded.builder
    await builder.facts(power("n1", 100), after_s=3600)
    await builder.answer(ask("unarchived"))
    builder.sign()
    builder.snapshot()
    await anchor(archived.recorded)

    done = await archived.trim()

    assert done.cut is not None
    assert done.cut.pos <= 11
    with History.of(archived.recorded.database) as history:
        assert history.tip() == 13
        assert [each.pos for each in history.entries()] == [*range(done.cut.pos, 14)]


async def test_a_head_that_is_not_anchored_cannot_be_a_cut(
    archived: ArchivedLog,
) -> None:
    anchored = [head for head in await archived.anchored() if head.pos <= 7]
    engine = database.trimmer(archived.recorded.database)
    now = archived.recorded.builder.clock()
    trimmer = archived.trimmer(engine)

    assert trimmer.cut(anchored, CutOptions(now, "test"), now)
    assert TrimStore(engine).newest().pos == 7  # type: ignore[union-attr]
    engine.dispose()


async def test_a_decision_with_a_pending_outcome_stays(archived: ArchivedLog) -> None:
    values = "(1, 1, '{uid}', 'team', 'late-1', 'n1', 1)"
    with History.of(archived.recorded.database) as history:
        uid = explain_pod(history, "team/late-1").pod.uid
    tamper(archived.recorded.database, f"INSERT INTO outcome_due VALUES {values.format(uid=uid)}")

    done = await archived.trim()

    assert done.cut is None  # the first head covers that decision


async def test_without_a_snapshot_there_is_no_cut(archived: ArchivedLog) -> None:
    tamper(archived.recorded.database, "DELETE FROM snapshot")

    assert (await archived.trim()).cut is None


def flip_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("table", ["entries", "heads", "messages", "batches"])
async def test_a_damaged_archive_prevents_a_trim(archived: ArchivedLog, table: str) -> None:
    for file in archived.path.glob(f"*/*/*/*/{table}.seg"):
        flip_a_byte(file)

    with pytest.raises(ArchiveBroken):
        await archived.trim()

    with History.of(archived.recorded.database) as history:
        assert (history.cut(), len(list(history.entries()))) == (None, 11)


async def test_a_database_that_differs_from_the_archive_is_not_trimmed(
    archived: ArchivedLog,
) -> None:
    tamper(
        archived.recorded.database,
        "UPDATE batch SET committed_at = committed_at + 1 WHERE p_to = 8",
    )

    with pytest.raises(NotTrimmed, match="differ at positions 1 to"):
        await archived.trim()


# --- after a crash ----------------------------------------------------------------------------

Step = Callable[[ArchiveTrim, ArchivedLog], Awaitable[None]]


async def cut_only(trimmer: ArchiveTrim, archived: ArchivedLog) -> None:
    now = archived.recorded.builder.clock()
    trimmer.cut(await archived.anchored(), CutOptions(now, "test"), now)


async def cut_and_purge(trimmer: ArchiveTrim, archived: ArchivedLog) -> None:
    await cut_only(trimmer, archived)
    await trimmer.trimmer.purge(archived.recorded.builder.bus, CLUSTER)


def dropping(portions: int) -> Step:
    async def step(trimmer: ArchiveTrim, archived: ArchivedLog) -> None:
        anchored, now = await archived.anchored(), archived.recorded.builder.clock()
        asked = trimmer.asked(anchored, CutOptions(now, "test"))
        assert asked is not None
        await cut_and_purge(trimmer, archived)
        for _, _ in zip(range(portions), trimmer.store.drop(asked.aside), strict=False):
            pass

    return step


STEPS = {
    "recorded": cut_only,
    "purged": cut_and_purge,
    **{f"{count} portions": dropping(count) for count in (1, 3, 5, 8, 13)},
}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
async def test_an_interrupted_trim_changes_nothing_for_readers_and_is_completed_later(
    archived: ArchivedLog, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joulie_projections.history.trimming.PORTION", 2)
    before = await archived.readings()
    engine = database.trimmer(archived.recorded.database)
    await step(archived.trimmer(engine), archived)
    engine.dispose()

    assert await archived.readings() == before
    assert ((await checked(archived)).flaw, archive_checked(archived).flaw) == (None, None)

    done = await archived.trim()

    assert done.cut is not None
    assert not done.is_new
    assert await archived.readings() == before
    with History.of(archived.recorded.database) as history:
        assert next(history.manifests()).p_to == done.cut.p_to
        assert next(history.entries()).pos == done.cut.pos


# --- readers of the remaining log -------------------------------------------------------------


async def test_the_remaining_log_replays_without_the_archive(archived: ArchivedLog) -> None:
    done = await archived.trim()
    assert done.cut is not None
    with History.of(archived.recorded.database) as history:
        async with StreamFacts.on(archived.recorded.builder.bus, history) as facts:
            again = await replay(history, facts, Scope(first=done.cut.p_to + 1))

    assert again.mismatches == 0


async def test_a_read_before_the_cut_gives_an_error_that_names_the_archive(
    archived: ArchivedLog,
) -> None:
    await archived.trim()
    with History.of(archived.recorded.database) as history:
        async with StreamFacts.on(archived.recorded.builder.bus, history) as facts:
            with pytest.raises(NotInTheLog, match=r"the log was trimmed.* --archive"):
                await replay(history, facts)
            with pytest.raises(NotInTheLog, match=r"the log was trimmed.* --archive"):
                await cluster_state_at(history, facts, 8)
        with pytest.raises(NotInTheLog, match=r"the log was trimmed.* --archive"):
            prove(history, 1, archived.public)
        with pytest.raises(NotInTheLog, match=r"the log was trimmed.* --archive"):
            explain_pod(history, "team/early-1")


async def test_settings_of_decisions_after_the_cut_stay(archived: ArchivedLog) -> None:
    await archived.trim()
    with History.of(archived.recorded.database) as history:
        assert [entry.pos for entry in history.declarations()] == [1]


async def test_facts_that_a_rebuild_quarantined_after_archiving_stay(archived: ArchivedLog) -> None:
    """Also before the cut: only the database holds them."""
    into = "INSERT INTO quarantine (position, stream, sequence, why, subject, body, rest)"
    values = "(9, 'JOULIE_TEL', 1, 'late', '', ?, ?)"
    tamper(archived.recorded.database, f"{into} VALUES {values}", b"x", b"")

    done = await archived.trim()

    assert done.cut is not None
    assert done.cut.p_to > 9
    with Sources(archived.recorded.database, archived.path).reading() as history:
        assert 9 in history.set_aside()
        assert len(history.quarantined()) == len(history.set_aside()) == 2
    with History.of(archived.recorded.database) as history:
        assert [poison.position for poison in history.quarantined()] == [9]


async def test_a_deleted_archive_index_is_rebuilt(archived: ArchivedLog) -> None:
    await archived.trim()
    before = await archived.readings()
    (archived.path / ".index.db").unlink()

    assert await archived.readings() == before


async def test_data_is_due_from_the_keep_window_until_it_is_trimmed(archived: ArchivedLog) -> None:
    hour, now = 3600.0, archived.recorded.builder.clock()

    def due() -> tuple[float, ...]:
        with History.of(archived.recorded.database) as history:
            return tuple(trim_due_s(history, keep_s, now) for keep_s in (0.0, hour, 10 * hour))

    before = due()
    await archived.trim()

    assert before[0] >= hour
    assert before[1] == before[0] - hour
    assert before[2] == 0  # all of it is within the window
    assert due() == (0.0, 0.0, 0.0)
