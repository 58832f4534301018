"""A log that another version of the folds continued for a while comes back, and is replayed."""

from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine

from audit_kit import RecordedLog, restore_into, written_archive
from bus_kit import ask, power
from joulie_audit.archive.parts import Archive
from joulie_audit.archive.restore import Restored, RestoreOptions
from joulie_audit.replay.archived import replay_alone
from joulie_audit.replay.fold_start import newest_start
from joulie_audit.replay.replay import ReplayReport, replay
from joulie_audit.verify.verify import verify
from joulie_audit.verify.verify_archive import verify_archive
from joulie_bus.errors import ArchiveBroken
from joulie_bus.events import Fact, TelemetrySampled
from joulie_cli.admin import rebuild as rebuild_command
from joulie_cli.audit import replay as replay_command
from joulie_cli.audit import verification
from joulie_cli.run import restore as restore_command
from joulie_projections.fold.manifest import CODE_VERSION
from joulie_projections.fold.registry import evolve
from joulie_projections.history.history import History
from joulie_projections.projector.rebuild import RebuildResult, rebuild
from joulie_projections.state.state_changes import Draft
from projections_kit import tamper

pytestmark = pytest.mark.anyio
NEXT = "next"


def same(draft: Draft, fact: Fact, at: int) -> None:
    evolve(draft, fact, at)


def doubled(draft: Draft, fact: Fact, at: int) -> None:
    """Folds twice the watts of n1."""
    if isinstance(fact, TelemetrySampled) and fact.node == "n1":
        fact = replace(fact, power_mw=fact.power_mw * 2)
    evolve(draft, fact, at)


@pytest.fixture
async def continued(small_log: RecordedLog) -> RecordedLog:
    """Three facts of the next version, which folds them in another way, and three of this one."""
    made = small_log.builder
    with made.folded_by(NEXT, doubled):
        await made.facts(power("n1", 150))
        await made.facts(power("n1", 160), power("n2", 170))
        await made.answer(ask("by-the-next"))
    await made.facts(power("n2", 200))
    await made.answer(ask("after-it"))
    await made.facts(power("n2", 201), power("n3", 202))
    made.sign()
    return small_log


async def exported(recorded: RecordedLog, to: Path) -> Path:
    await written_archive(recorded, to)
    return to


async def replayed(recorded: RecordedLog) -> ReplayReport:
    async with recorded.reading() as (history, facts):
        return await replay(history, facts)


async def rebuilt(recorded: RecordedLog, writer: Engine) -> RebuildResult:
    return await rebuild(recorded.builder.bus, writer, "rebuild")


# --- one that folds to the same state ---------------------------------------------------------


async def test_states_of_another_version_are_not_compared_and_all_others_are(
    small_log: RecordedLog, writer: Engine, tmp_path: Path
) -> None:
    made = small_log.builder
    with made.folded_by(NEXT, same):
        await made.facts(power("n1", 150))
        await made.facts(power("n1", 160), power("n2", 170))
    await made.facts(power("n3", 180))
    archive = await exported(small_log, tmp_path / "a")

    there = await replayed(small_log)
    alone = await replay_alone(archive)
    restored = restore_into(archive, tmp_path / "restored.db")
    again = await rebuilt(small_log, writer)

    expected = Counter({NEXT: 3})
    assert (there.mismatches, there.uncompared) == (0, expected)
    assert alone._replace(seconds=0) == there._replace(seconds=0)
    assert (restored.facts, restored.uncompared) == (made.position, expected)
    assert (again.differs_at, again.uncompared) == (0, expected)


# --- one that folds to another state ----------------------------------------------------------


async def test_a_log_that_another_version_continued_is_replayed_without_a_mismatch(
    continued: RecordedLog,
) -> None:
    done = await replayed(continued)

    assert done.mismatches == 0
    assert done.uncompared == {NEXT: 3, CODE_VERSION: 3}
    assert done.other_folds == len(done.on_other_folds) > 0  # they were made on other watts
    text = replay_command.as_text(replay_command.as_json(done))
    what = f"3 of version {NEXT} and 3 of version {CODE_VERSION} after them"
    assert f"Folded, but not compared: {what}" in text
    assert f"{done.other_folds} were made on such a state and differ:" in text


async def test_states_are_compared_again_from_a_snapshot_of_this_version_on(
    continued: RecordedLog,
) -> None:
    made = continued.builder
    made.snapshot()
    await made.facts(power("n1", 151), power("n4", 400))
    await made.answer(ask("after-the-snapshot"))

    done = await replayed(continued)
    forged = f"UPDATE batch SET state_digest = x'00' WHERE p_to = {made.position}"
    tamper(continued.database, forged)
    found = await replayed(continued)

    assert (done.mismatches, done.uncompared) == (0, {NEXT: 3, CODE_VERSION: 3})
    assert [each.what for each in found.reported] == [f"state at {made.position} differs"]


async def test_an_archive_that_another_version_continued_is_restored(
    continued: RecordedLog, tmp_path: Path
) -> None:
    archive = await exported(continued, tmp_path / "a")

    done = restore_into(archive, tmp_path / "restored.db")
    alone = await replay_alone(archive)

    assert done == Restored(continued.builder.position, 13, {NEXT: 3, CODE_VERSION: 3})
    assert "3 of version next" in restore_command.as_text(done, tmp_path)
    assert (alone.mismatches, alone.uncompared) == (0, done.uncompared)
    with History.of(tmp_path / "restored.db") as history, History.of(continued.database) as first:
        assert list(history.manifests()) == list(first.manifests())
        report = verify(history, continued.builder.signer.public, [])
        assert report.flaw is None


async def test_a_restore_continues_with_the_recorded_state_at_the_next_snapshot(
    continued: RecordedLog, tmp_path: Path
) -> None:
    made = continued.builder
    made.snapshot()
    await made.facts(power("n2", 300))
    archive = await exported(continued, tmp_path / "a")

    done = restore_into(archive, tmp_path / "new.db", RestoreOptions(is_whole=True))

    assert done.uncompared == {NEXT: 3, CODE_VERSION: 1}
    with History.of(tmp_path / "new.db") as history, History.of(continued.database) as first:
        assert history.digests() == first.digests()


async def test_a_fact_of_another_version_that_was_exchanged_is_not_restored(
    continued: RecordedLog, tmp_path: Path
) -> None:
    tamper(continued.database, f"UPDATE batch SET facts_hash = x'00' WHERE fold_version = '{NEXT}'")
    archive = await exported(continued, tmp_path / "a")

    with pytest.raises(ArchiveBroken, match="its facts and its manifest at 24 differ"):
        restore_into(archive, tmp_path / "restored.db")


async def test_a_rebuild_folds_what_another_version_folded(
    continued: RecordedLog, writer: Engine
) -> None:
    done = await rebuilt(continued, writer)

    assert (done.differs_at, done.uncompared) == (0, {NEXT: 3, CODE_VERSION: 3})
    assert "not compared: 3 of version next" in rebuild_command.as_text(done)
    with History.of(continued.database) as history:
        checkpoint = history.checkpoint()
        assert checkpoint is not None
        assert checkpoint.digests == history.digests()


async def test_verify_names_the_positions_of_another_version_in_an_archive(
    continued: RecordedLog, tmp_path: Path
) -> None:
    archive = await exported(continued, tmp_path / "a")

    found = verify_archive(Archive.of(archive), continued.builder.signer.public)

    assert (found.flaw, found.other_folds) == (None, {NEXT: 3})
    text = "\n".join(verification.archive_lines(found, "all is well"))
    assert "3 positions of fold version next: a restore folds these facts again" in text


# --- where a rebuild begins -------------------------------------------------------------------


async def test_a_rebuild_begins_at_a_snapshot_of_this_version_before_another_one(
    small_log: RecordedLog,
) -> None:
    made = small_log.builder
    before = made.snapshot()
    with made.folded_by(NEXT, doubled):
        await made.facts(power("n1", 150))
        made.snapshot()
    await made.facts(power("n1", 160))
    mixed = made.snapshot()

    with History.of(small_log.database) as history:
        found = newest_start(history, history.pure_starts())

        assert history.starts() == [before, mixed]
        assert found is not None
        assert found.position == before


async def test_a_rebuild_begins_at_a_snapshot_behind_a_rebuild_of_this_version(
    continued: RecordedLog, writer: Engine
) -> None:
    made = continued.builder
    await made.facts(power("n1", 160))
    at = made.snapshot()
    await rebuilt(continued, writer)

    with History.of(continued.database) as history:
        assert (history.starts(), history.pure_starts()) == ([at], [])  # made before the rebuild
    tamper(continued.database, "UPDATE rebuilt SET position = position - 1")
    with History.of(continued.database) as history:
        assert history.pure_starts() == [at]


async def test_a_damaged_snapshot_is_passed_over_for_an_earlier_one(
    small_log: RecordedLog,
) -> None:
    made = small_log.builder
    first = made.snapshot()
    await made.facts(power("n1", 160))
    second = made.snapshot()
    tamper(small_log.database, f"UPDATE snapshot SET body = x'00' WHERE position = {second}")

    with History.of(small_log.database) as history:
        found = newest_start(history, history.pure_starts())

    assert found is not None
    assert found.position == first
