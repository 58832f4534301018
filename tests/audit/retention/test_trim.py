"""What an archive holds may be deleted; readers through the archive see no difference."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine

from joulie_audit.archive.archiver import Archiver
from joulie_audit.archive.columnar import Segment
from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.fact_source import StreamFacts, plan_facts
from joulie_audit.archive.parts import Archive, ArchivedFacts
from joulie_audit.chain.entries import Flaw
from joulie_audit.questions.explain import explain_pod
from joulie_audit.questions.time_travel import cluster_state_at
from joulie_audit.replay.replay import Replayed, Scope, replay
from joulie_audit.retention.cut_points import Wish, heads_of
from joulie_audit.retention.trim import Trimmed, Trimmer
from joulie_audit.retention.trim_streams import newest
from joulie_audit.testing import Past, small_past_in
from joulie_audit.verify.proof import prove
from joulie_audit.verify.verify import Report, verify
from joulie_audit.verify.verify_archive import ArchiveReport, verify_archive
from joulie_bus.errors import ArchiveBroken, NotInTheLog, NotTrimmed
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Stream
from joulie_bus.testing import CLUSTER, ask, power
from joulie_projections.decision_log import heads
from joulie_projections.decision_log.heads import Head
from joulie_projections.fold.commit import Input
from joulie_projections.history.history import History, Wanted
from joulie_projections.history.trimming import TrimStore
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.testing import tamper

pytestmark = pytest.mark.anyio
FOR_EVER = 2**62


class Kept(NamedTuple):
    """A past and its archive."""

    past: Past
    path: Path

    @property
    def public(self) -> Any:
        return self.past.maker.signer.public

    def trimmer(self, engine: Engine) -> Trimmer:
        reading = Sources(self.past.database).reading
        return Trimmer(Archive.of(self.path), TrimStore(engine), reading, self.public)

    async def archive(self) -> None:
        async with self.past.reading() as (history, facts):
            await Archiver(self.path, Segment(), FOR_EVER).run(history, facts)

    async def anchored(self) -> list[Head]:
        return heads_of(await newest(self.past.maker.bus, Stream.HEADS, 1000))

    async def trim(self, keep_s: float = 0.0) -> Trimmed:
        maker, engine = self.past.maker, database.trimmer(self.past.database)
        try:
            now = maker.clock()
            wish = Wish(now - int(keep_s * 1e9), now, "test")
            return await self.trimmer(engine).run(maker.bus, CLUSTER, await self.anchored(), wish)
        finally:
            engine.dispose()

    async def seen(self) -> "Seen":
        """Through the archive."""
        with Sources(self.past.database, self.path).reading() as history:
            created = {stream: Input("", 0) for stream in Stream}
            async with StreamFacts.over(self.past.maker.bus, created) as streams:
                facts = ArchivedFacts(Archive.of(self.path), streams)
                done = await replay(history, facts)
                cluster_states = [await cluster_state_at(history, facts, at) for at in (8, 13)]
                plans = [found async for found in plan_facts(history, facts)]
            return Seen(
                done._replace(seconds=0),
                [cluster_state.nodes for cluster_state in cluster_states],
                plans,
                list(history.entries()),
                [entry.pos for entry in history.find(Wanted())],
                history.heads(),
                list(history.manifests()),
                list(history.manifests_back()),
                [explain_pod(history, f"team/{pod}").entries for pod in PODS],
                [prove(history, at) for at in (1, 4, 9)],
                history.committed_between(),
                [history.committed_at(at) for at in (1, 8, 9, 20)],
                history.quarantined(),
            )


class Seen(NamedTuple):
    replayed: Replayed
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


async def anchor(past: Past) -> None:
    """As the projector does with each head."""
    with History.of(past.database) as history:
        signed = history.heads()
    for head in signed:
        message = Message(CLUSTER.heads, f"head:{head.pos}", heads.encode(head))
        await past.maker.bus.publish([message])


async def grown(past: Past) -> None:
    """The small past, and a while later: two snapshots, something in quarantine, more pods."""
    maker = past.maker
    maker.snapshot()
    await maker.poisoned(power("n1", 777))
    await maker.facts(*(power(name, 150) for name in ("n1", "n2", "n3")), after_s=3600)
    await maker.answer(ask("last"))
    maker.sign()
    maker.snapshot()
    await anchor(past)


@pytest.fixture(params=["database_file", "postgres"], ids=["sqlite", "postgres"])
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    found = request.getfixturevalue(request.param)
    place: Place = found if isinstance(found, Path) else found.migrated()
    async with small_past_in(place, tmp_path) as past:
        await grown(past)
        made = Kept(past, tmp_path / "archive")
        await made.archive()
        yield made


async def checked(kept: Kept) -> Report:
    with History.of(kept.past.database) as history:
        return verify(history, kept.public, await kept.anchored())


def archive_checked(kept: Kept) -> ArchiveReport:
    with History.of(kept.past.database) as history:
        return verify_archive(Archive.of(kept.path), kept.public, history)


async def test_through_the_archive_a_trimmed_past_is_what_it_was(kept: Kept) -> None:
    before = await kept.seen()

    done = await kept.trim()
    after = await kept.seen()

    assert done.cut is not None
    assert done.is_new
    assert done.rows > 0
    assert {"JOULIE_TEL", "JOULIE_OBS", "JOULIE_DEC"} <= done.messages.keys()
    assert "JOULIE_HEADS" not in done.messages
    assert after == before
    assert (after.replayed.decisions, after.replayed.mismatches) == (10, 0)
    assert [proof.position for proof in after.proofs] == [1, 4, 9]


async def test_after_a_trim_it_goes_on_and_is_trimmed_again(kept: Kept) -> None:
    first = await kept.trim()
    maker = kept.past.maker
    await maker.facts(*(power(name, 175) for name in ("n1", "n2", "n3", "n4")), after_s=7200)
    await maker.answer(ask("more"))
    maker.sign()
    maker.snapshot()
    await anchor(kept.past)
    await kept.archive()
    before = await kept.seen()

    second = await kept.trim()

    assert first.cut is not None
    assert second.cut is not None
    assert (second.cut.number, second.is_new) == (2, True)
    assert second.cut.pos > first.cut.pos
    assert second.cut.p_to > first.cut.p_to
    assert await kept.seen() == before
    assert (await checked(kept)).flaw is None
    assert archive_checked(kept).flaw is None


# --- what verify tells ------------------------------------------------------------------------


async def test_without_the_archive_verify_names_what_it_did_not_see(kept: Kept) -> None:
    done = await kept.trim()

    report = await checked(kept)

    assert done.cut is not None
    assert (report.flaw, report.cut) == (None, done.cut)
    assert report.entries == 11 - done.cut.pos


async def test_with_the_archive_both_are_one_chain(kept: Kept) -> None:
    await kept.trim()

    assert archive_checked(kept).flaw is None


async def test_a_log_that_was_never_cut_has_nothing_unseen(kept: Kept) -> None:
    assert (await checked(kept)).cut is None


FORGED = {
    "a hash that nobody signed": "UPDATE cut SET hash = manifest_head",
    "a signature of another head": "UPDATE cut SET signature = hash",
    "an entry that is not there": "DELETE FROM decision WHERE pos = (SELECT pos FROM cut)",
    "another entry": "UPDATE cut SET pos = pos + 1",
    "another manifest": "UPDATE cut SET manifest_head = hash",
    "no cut at all": "DELETE FROM cut",
}


@pytest.mark.parametrize("statement", FORGED.values(), ids=FORGED.keys())
async def test_a_forged_cut_is_a_flaw(kept: Kept, statement: str) -> None:
    await kept.trim()
    tamper(kept.past.database, statement)

    assert (await checked(kept)).flaw is not None


async def test_rows_that_were_deleted_without_a_cut_are_a_flaw(kept: Kept) -> None:
    tamper(kept.past.database, "DELETE FROM decision WHERE pos < 5")

    assert (await checked(kept)).flaw == Flaw(1, "entry 1 is missing; the log goes on at 5")


async def test_an_archive_that_ends_in_front_of_the_cut_is_a_flaw(
    kept: Kept, tmp_path: Path
) -> None:
    await kept.trim()
    (tmp_path / "other" / "log").mkdir(parents=True)
    other = kept._replace(path=tmp_path / "other")

    assert "it ends in front of entry" in str(archive_checked(other).flaw)
    with pytest.raises(NotInTheLog, match="in front of what was trimmed"):
        await other.seen()


async def test_a_trimmed_log_is_not_archived_anywhere_else(kept: Kept, tmp_path: Path) -> None:
    await kept.trim()

    with pytest.raises(NotInTheLog, match="in front of what was trimmed"):
        await kept._replace(path=tmp_path / "new").archive()


async def test_a_head_from_elsewhere_that_signed_another_entry_at_the_cut_is_a_flaw(
    kept: Kept,
) -> None:
    done = await kept.trim()
    assert done.cut is not None
    other = kept.past.maker.signer.sign(done.cut.pos, bytes(32), 1)
    with History.of(kept.past.database) as history:
        report = verify(history, kept.public, [other])

    assert report.flaw is not None
    assert report.flaw.place == done.cut.pos


async def test_a_head_from_elsewhere_in_front_of_the_cut_is_held_against_the_archive(
    kept: Kept,
) -> None:
    await kept.trim()
    other = kept.past.maker.signer.sign(3, bytes(32), 1)
    with History.of(kept.past.database) as history:
        report = verify_archive(Archive.of(kept.path), kept.public, history, [other])

    assert "entry 3 is not the one that was signed" in str(report.flaw)


async def test_a_cut_that_names_another_part_of_the_archive_is_a_flaw(kept: Kept) -> None:
    await kept.trim()
    tamper(kept.past.database, "UPDATE cut SET log_seal = 'another'")

    assert "is not the part that the log was cut by" in str(archive_checked(kept).flaw)


# --- what is not cut --------------------------------------------------------------------------


async def test_what_is_younger_than_the_keep_window_stays(kept: Kept) -> None:
    done = await kept.trim(keep_s=1e6)

    assert (done.cut, done.rows, done.messages) == (None, 0, {})


async def test_the_keep_window_decides_which_head_is_the_cut(kept: Kept) -> None:
    done = await kept.trim(keep_s=1800)

    assert done.cut is not None
    assert done.cut.pos == 9  # the heads before the last hour are those of the small past


async def test_what_is_not_archived_stays(kept: Kept) -> None:
    maker = kept.past.maker
    await maker.facts(power("n1", 100), after_s=3600)
    await maker.answer(ask("unarchived"))
    maker.sign()
    maker.snapshot()
    await anchor(kept.past)

    done = await kept.trim()

    assert done.cut is not None
    assert done.cut.pos <= 11
    with History.of(kept.past.database) as history:
        assert history.tip() == 13
        assert [each.pos for each in history.entries()] == [*range(done.cut.pos, 14)]


async def test_a_head_that_is_not_anchored_elsewhere_is_no_place_to_cut(kept: Kept) -> None:
    anchored = [head for head in await kept.anchored() if head.pos <= 7]
    engine = database.trimmer(kept.past.database)
    now = kept.past.maker.clock()
    trimmer = kept.trimmer(engine)

    assert trimmer.cut(anchored, Wish(now, now, "test"))
    assert TrimStore(engine).newest().pos == 7  # type: ignore[union-attr]
    engine.dispose()


async def test_an_answer_whose_outcome_is_due_stays(kept: Kept) -> None:
    values = "(1, 1, '{uid}', 'team', 'late-1', 'n1', 1)"
    with History.of(kept.past.database) as history:
        uid = explain_pod(history, "team/late-1").pod.uid
    tamper(kept.past.database, f"INSERT INTO outcome_due VALUES {values.format(uid=uid)}")

    done = await kept.trim()

    assert done.cut is None  # the first head covers that answer


async def test_no_snapshot_no_cut(kept: Kept) -> None:
    tamper(kept.past.database, "DELETE FROM snapshot")

    assert (await kept.trim()).cut is None


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("table", ["entries", "heads", "facts", "batches"])
async def test_an_archive_that_does_not_read_back_lets_nothing_go(kept: Kept, table: str) -> None:
    for file in kept.path.glob(f"*/*/*/*/{table}.seg"):
        flip(file)

    with pytest.raises(ArchiveBroken):
        await kept.trim()

    with History.of(kept.past.database) as history:
        assert (history.cut(), len(list(history.entries()))) == (None, 11)


async def test_a_database_that_differs_from_the_archive_lets_nothing_go(kept: Kept) -> None:
    tamper(kept.past.database, "UPDATE batch SET committed_at = committed_at + 1 WHERE p_to = 8")

    with pytest.raises(NotTrimmed, match="differ at positions 1 to"):
        await kept.trim()


# --- after a crash ----------------------------------------------------------------------------

Step = Callable[[Trimmer, Kept], Awaitable[None]]


async def cut_only(trimmer: Trimmer, kept: Kept) -> None:
    now = kept.past.maker.clock()
    trimmer.cut(await kept.anchored(), Wish(now, now, "test"))


async def cut_and_purge(trimmer: Trimmer, kept: Kept) -> None:
    await cut_only(trimmer, kept)
    await trimmer.purge(kept.past.maker.bus, CLUSTER)


def dropping(portions: int) -> Step:
    async def step(trimmer: Trimmer, kept: Kept) -> None:
        await cut_and_purge(trimmer, kept)
        for _, _ in zip(range(portions), trimmer.store.drop(trimmer.set_aside()), strict=False):
            pass

    return step


STEPS = {
    "recorded": cut_only,
    "purged": cut_and_purge,
    **{f"{count} portions": dropping(count) for count in (1, 3, 5, 8, 13)},
}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
async def test_a_trim_that_ends_amid_its_steps_is_whole_to_readers_and_is_finished_later(
    kept: Kept, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joulie_projections.history.trimming.PORTION", 2)
    before = await kept.seen()
    engine = database.trimmer(kept.past.database)
    await step(kept.trimmer(engine), kept)
    engine.dispose()

    assert await kept.seen() == before
    assert ((await checked(kept)).flaw, archive_checked(kept).flaw) == (None, None)

    done = await kept.trim()

    assert done.cut is not None
    assert not done.is_new
    assert await kept.seen() == before
    with History.of(kept.past.database) as history:
        assert next(history.manifests()).p_to == done.cut.p_to
        assert next(history.entries()).pos == done.cut.pos


# --- readers of the rest ----------------------------------------------------------------------


async def test_what_is_left_replays_without_the_archive(kept: Kept) -> None:
    done = await kept.trim()
    assert done.cut is not None
    with History.of(kept.past.database) as history:
        async with StreamFacts.on(kept.past.maker.bus, history) as facts:
            again = await replay(history, facts, Scope(first=done.cut.p_to + 1))

    assert again.mismatches == 0


async def test_what_was_cut_names_the_archive_as_the_way_to_it(kept: Kept) -> None:
    await kept.trim()
    with History.of(kept.past.database) as history:
        async with StreamFacts.on(kept.past.maker.bus, history) as facts:
            with pytest.raises(NotInTheLog, match=r"the log was trimmed.* --archive"):
                await replay(history, facts)
            with pytest.raises(NotInTheLog, match=r"the log was trimmed.* --archive"):
                await cluster_state_at(history, facts, 8)
        with pytest.raises(NotInTheLog, match=r"the log was trimmed.* --archive"):
            prove(history, 1)
        with pytest.raises(NotInTheLog, match=r"the log was trimmed.* --archive"):
            explain_pod(history, "team/early-1")


async def test_settings_that_answers_behind_the_cut_name_stay(kept: Kept) -> None:
    await kept.trim()
    with History.of(kept.past.database) as history:
        assert [entry.pos for entry in history.declarations()] == [1]


async def test_what_a_rebuild_set_aside_after_it_was_archived_stays(kept: Kept) -> None:
    """Also in front of the cut, where nothing but the database knows of it."""
    into = "INSERT INTO quarantine (position, stream, sequence, why, body)"
    tamper(kept.past.database, f"{into} VALUES (9, 'JOULIE_TEL', 1, 'late', ?)", b"x")

    done = await kept.trim()

    assert done.cut is not None
    assert done.cut.p_to > 9
    with Sources(kept.past.database, kept.path).reading() as history:
        assert 9 in history.set_aside()
        assert len(history.quarantined()) == len(history.set_aside()) == 2
    with History.of(kept.past.database) as history:
        assert [poison.position for poison in history.quarantined()] == [9]


async def test_the_index_of_an_archive_may_be_deleted(kept: Kept) -> None:
    await kept.trim()
    before = await kept.seen()
    (kept.path / ".index.db").unlink()

    assert await kept.seen() == before
