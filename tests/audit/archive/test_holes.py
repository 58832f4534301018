"""An archive that lacks messages comes back up to them, and again from the next snapshot on."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from audit_kit import NAMES, RecordedLog, restore_into, written_archive
from bus_kit import ask, node_seen, power
from joulie_audit.archive.archived_facts import ArchivedFacts
from joulie_audit.archive.parts import Archive
from joulie_audit.archive.restore import RestoreOptions
from joulie_audit.archive.restore_plan import Hole, holes_of
from joulie_audit.ledger.follow import LedgerFollower
from joulie_audit.replay.archived import replay_alone
from joulie_audit.verify.verify import verify
from joulie_audit.verify.verify_archive import ArchiveReport, verify_archive
from joulie_bus.errors import NeverArchived
from joulie_bus.streams.subjects import Stream
from joulie_cli.audit import replay as replay_command
from joulie_cli.audit import verification
from joulie_cli.run import restore as restore_command
from joulie_projections.history.history import History
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.energy_table import EnergyTable
from joulie_projections.store.retrying import DatabaseExecutor
from joulie_projections.store.store import Store
from projections_kit import tamper

pytestmark = pytest.mark.anyio
WHOLE = RestoreOptions(is_whole=True)
BEFORE, SNAPSHOT = 23, 30  # the last position before the hole, and the snapshot behind it
LOST = Hole(24, SNAPSHOT, "4 messages of JOULIE_TEL", is_closed=True)


async def archived(recorded: RecordedLog, to: Path) -> Path:
    await written_archive(recorded, to)
    return to


def verified(recorded: RecordedLog, archive: Path) -> ArchiveReport:
    return verify_archive(Archive.of(archive), recorded.builder.signer.public)


def held(place: Place) -> object:
    """The position and all rows, without what identifies the database."""
    engine = database.reader(place)
    checkpoint, rows = Store(engine).load()
    engine.dispose()
    assert checkpoint is not None
    return checkpoint._replace(incarnation="", epoch=0), sorted(rows)


async def lose_readings(recorded: RecordedLog, archive: Path) -> None:
    """The archiver is away, while four readings age out; facts behind them do not."""
    made = recorded.builder
    await archived(recorded, archive)
    await made.facts(*(power(name, 130) for name in NAMES))
    await made.answer(ask("in-the-hole"))
    await made.facts(node_seen("n5"), power("n5", 90), power("n1", 200))
    made.broker.trim(Stream.TEL, 12)


@pytest.fixture
async def archive(small_log: RecordedLog, tmp_path: Path) -> Path:
    """With a snapshot behind the hole, and facts and a decision behind that."""
    await lose_readings(small_log, tmp_path / "archive")
    assert small_log.builder.snapshot() == SNAPSHOT
    await small_log.builder.facts(power("n2", 210), power("n5", 95), after_s=90)
    await small_log.builder.answer(ask("behind-it"))
    small_log.builder.sign()
    return await archived(small_log, tmp_path / "archive")


@pytest.mark.parametrize("options", [WHOLE, RestoreOptions()], ids=["whole", "from-a-snapshot"])
async def test_what_lies_behind_a_hole_is_restored_from_the_next_snapshot_on(
    small_log: RecordedLog, archive: Path, tmp_path: Path, options: RestoreOptions
) -> None:
    done = restore_into(archive, tmp_path / "new.db", options)

    assert (done.facts, done.entries, done.holes) == (small_log.builder.position, 13, (LOST,))
    assert f"NOT folded: positions 24 to {SNAPSHOT}" in restore_command.as_text(done, tmp_path)
    assert held(tmp_path / "new.db") == held(small_log.database)
    with History.of(tmp_path / "new.db") as history, History.of(small_log.database) as first:
        assert list(history.manifests()) == list(first.manifests())
        assert list(history.entries()) == list(first.entries())
        assert history.row_name_changes(1, 99) == first.row_name_changes(1, 99)
        assert verify(history, small_log.builder.signer.public, []).flaw is None


async def test_verify_names_beforehand_what_comes_back(
    small_log: RecordedLog, archive: Path
) -> None:
    found = verified(small_log, archive)

    assert (found.flaw, found.lost, found.holes) == (None, 4, (LOST,))
    text = "\n".join(verification.archive_lines(found, "all is well"))
    assert "A restore brings back positions 1 to 23 and 30 to 32." in text
    assert "NOT positions 24 to 30: 4 messages of JOULIE_TEL had aged out of their stream" in text
    assert "the state is known again from the snapshot at 30 on" in text
    assert verification.archive_json(found)["holes"] == [LOST._asdict()]


async def test_replay_recomputes_what_lies_beside_a_hole(
    small_log: RecordedLog, archive: Path
) -> None:
    done = await replay_alone(archive)

    assert (done.mismatches, done.decisions, done.in_holes) == (0, 10, 2)
    assert [tuple(hole) for hole in done.holes] == [(24, SNAPSHOT)]
    assert done.events == small_log.builder.position - 7
    text = replay_command.as_text(replay_command.as_json(done))
    assert "NOT folded: positions 24 to 30" in text
    assert "2 decisions and plans on them were not recomputed" in text


# --- without a snapshot behind it -------------------------------------------------------------


async def no_snapshot(recorded: RecordedLog) -> None:
    """There is none."""


async def one_of_another_version(recorded: RecordedLog) -> None:
    recorded.builder.snapshot()
    tamper(recorded.database, "UPDATE snapshot SET fold_version = 'next'")


async def a_forged_one(recorded: RecordedLog) -> None:
    """A writer of the archive can make a snapshot of any rows; its manifest differs."""
    made = recorded.builder
    made.cluster_state.nodes.pop("n1")
    made.snapshot()


async def a_damaged_one(recorded: RecordedLog) -> None:
    recorded.builder.snapshot()
    tamper(recorded.database, "UPDATE snapshot SET body = x'00'")


@pytest.mark.parametrize("kept", [no_snapshot, one_of_another_version, a_forged_one, a_damaged_one])
async def test_without_a_snapshot_that_can_be_used_it_comes_back_up_to_the_hole(
    small_log: RecordedLog, tmp_path: Path, kept: Callable[[RecordedLog], Awaitable[None]]
) -> None:
    await lose_readings(small_log, tmp_path / "archive")
    await kept(small_log)
    small_log.builder.sign()
    archive = await archived(small_log, tmp_path / "archive")

    done = restore_into(archive, tmp_path / "new.db")
    found = verified(small_log, archive)

    hole = Hole(24, SNAPSHOT, "4 messages of JOULIE_TEL", is_closed=False)
    assert (done.facts, done.entries, done.holes) == (BEFORE, 9, (hole,))
    assert (found.flaw, found.holes) == (None, (hole,))
    text = "\n".join(verification.archive_lines(found, "all is well"))
    assert "A restore brings back positions 1 to 23." in text
    assert "no snapshot behind them can be used" in text
    with History.of(tmp_path / "new.db") as history:
        assert verify(history, small_log.builder.signer.public, []).flaw is None


async def test_each_snapshot_between_lost_messages_divides_the_hole(
    small_log: RecordedLog, tmp_path: Path
) -> None:
    await lose_readings(small_log, tmp_path / "archive")
    small_log.builder.snapshot()
    await small_log.builder.facts(power("n1", 300))
    small_log.builder.broker.trim(Stream.TEL, 15)
    archive = await archived(small_log, tmp_path / "archive")

    found = list(holes_of(Archive.of(archive)))

    assert found == [
        Hole(24, 30, "6 messages of JOULIE_TEL", is_closed=True),
        Hole(31, 31, "1 message of JOULIE_TEL", is_closed=False),
    ]


async def test_an_archive_that_lacks_its_first_messages_and_has_no_snapshot_is_not_restored(
    recorded: RecordedLog, tmp_path: Path
) -> None:
    await recorded.builder.facts(power("n1", 100))
    await recorded.builder.facts(power("n1", 110))
    recorded.builder.broker.trim(Stream.TEL, 1)
    archive = await archived(recorded, tmp_path / "archive")

    with pytest.raises(NeverArchived, match="lacks messages of the positions 1 to 2"):
        restore_into(archive, tmp_path / "new.db")


async def test_a_ledger_is_folded_behind_a_hole_and_knows_no_energy_in_it(
    small_log: RecordedLog, archive: Path
) -> None:
    """Without the readings of the hole, those around it are more than a minute apart."""
    executor, engine = DatabaseExecutor(), database.ledger(small_log.database)
    table = EnergyTable(engine)
    async with small_log.reading() as (history, streams):
        facts = ArchivedFacts(Archive.of(archive), streams)
        follower = LedgerFollower(table, executor)
        while not await follower.catch_up(history, facts):
            pass
    executor.close()
    state = table.load()
    engine.dispose()

    assert state is not None
    assert state.position == small_log.builder.position
    assert state.ledger.nodes.keys() >= {"n2", "n5"}
    meters, n2 = state.ledger.meters, state.ledger.nodes["n2"].row
    assert meters.columns["last_mw"][n2] == 210_000
    assert meters.columns["unknown_ms"][n2] > 90_000
