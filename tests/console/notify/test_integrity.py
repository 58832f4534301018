"""The check of the newest entries: silent about every sound log, trimmed ones included."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import joulie_migrations
from audit_kit import RecordedLog, small_log_in, written_archive
from bus_kit import CLUSTER, ask, power
from joulie_answers.readers.history import HistoryReader
from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.parts import Archive
from joulie_audit.retention.cut_points import CutOptions
from joulie_bus.streams.records import Message
from joulie_console.notify import integrity
from joulie_console.notify.integrity import Integrity
from joulie_console.views.conditions import Condition
from joulie_projections.decision_log import heads
from joulie_projections.decision_log.heads import Head
from joulie_projections.history.history import History
from joulie_projections.history.trimming import TrimStore
from joulie_projections.projector.trim_streams import anchored_heads
from joulie_projections.store import database
from signed_heads import head_at
from trim_kit import ArchiveTrim

pytestmark = pytest.mark.anyio


@pytest.fixture
async def recorded(tmp_path: Path) -> AsyncGenerator[RecordedLog, None]:
    made = database.migrator(tmp_path / "joulie.db")
    joulie_migrations.upgrade(made)
    made.dispose()
    async with small_log_in(tmp_path / "joulie.db", tmp_path) as small:
        await publish(small, *own_heads(small))
        yield small


def own_heads(log: RecordedLog) -> list[Head]:
    with History.of(log.database) as history:
        return history.heads()


async def publish(log: RecordedLog, *signed: Head) -> None:
    for head in signed:
        message = Message(CLUSTER.heads, f"head:{head.pos}", heads.encode(head))
        await log.builder.bus.publish([message])


async def grow(log: RecordedLog, pods: int) -> None:
    for number in range(pods):
        await log.builder.facts(power("n1", 150 + number), after_s=3600)
        await log.builder.answer(ask(f"later-{number}"))
    log.builder.sign()
    await publish(log, own_heads(log)[-1])


async def flaws(log: RecordedLog) -> list[Condition]:
    reader = HistoryReader(lambda: History.readable(log.database))
    try:
        return await Integrity(log.builder.bus, reader).flaws()
    finally:
        reader.close()


async def trim(log: RecordedLog, archive: Path) -> None:
    await written_archive(log, archive)
    builder, engine = log.builder, database.trimmer(log.database)
    reading = Sources(log.database).reading
    trimmer = ArchiveTrim(Archive.of(archive), TrimStore(engine), reading, builder.signer.public)
    published = await anchored_heads(builder.bus, 1000)
    try:
        options = CutOptions(builder.clock(), "test")
        done = await trimmer.run(builder.bus, published, options, builder.clock())
    finally:
        engine.dispose()
    assert done.rows > 0


async def test_a_sound_log_has_no_flaws_as_it_grows(
    recorded: RecordedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "ENTRIES", 5)
    found = await flaws(recorded)
    for _ in range(3):
        await grow(recorded, 4)
        found += await flaws(recorded)

    assert found == []


async def test_a_trimmed_log_has_no_flaws(recorded: RecordedLog, tmp_path: Path) -> None:
    recorded.builder.snapshot()
    await grow(recorded, 3)
    recorded.builder.snapshot()
    await trim(recorded, tmp_path / "archive")
    found = await flaws(recorded)
    await grow(recorded, 3)

    assert [*found, *await flaws(recorded)] == []


async def test_a_log_that_was_emptied_lacks_the_entry_of_its_head(
    tmp_path: Path, recorded: RecordedLog
) -> None:
    made = database.migrator(tmp_path / "empty.db")
    joulie_migrations.upgrade(made)
    made.dispose()
    nothing = RecordedLog(recorded.builder, tmp_path / "empty.db")

    [found] = await flaws(nothing)  # but the broker has a head of one

    assert "Was the database set back?" in found.text


async def test_a_head_of_another_log_at_the_broker_is_a_flaw(recorded: RecordedLog) -> None:
    earlier = own_heads(recorded)[-1].pos - 1
    await publish(recorded, head_at(recorded.builder.signer, earlier, bytes(32)))

    [found] = await flaws(recorded)

    assert (found.kind, found.since) == ("log.invalid", str(earlier))
    assert "is not what its signed head says" in found.text
