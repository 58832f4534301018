"""An exported log, replayed without its database and its streams."""

from pathlib import Path

import pytest

from audit_kit import RecordedLog, written_archive
from bus_kit import ask
from joulie.client import JoulieError, replay_archive
from joulie_audit.replay.replay import replay
from joulie_bus.errors import ArchiveBroken
from joulie_extender.catalogue.weights import Weights

pytestmark = pytest.mark.anyio


async def exported(recorded: RecordedLog, to: Path) -> Path:
    await written_archive(recorded, to)
    return to


async def test_an_archive_alone_is_replayed_like_the_log_itself(
    small_log: RecordedLog, tmp_path: Path
) -> None:
    archive = await exported(small_log, tmp_path / "archive")
    before = sorted(tmp_path.rglob("*"))

    found = await replay_archive(archive)

    async with small_log.reading() as (history, facts):
        here = await replay(history, facts)
    assert found._replace(seconds=0) == here._replace(seconds=0)
    assert (found.mismatches, found.plans) == (0, 1)
    assert found.decisions > 0
    assert sorted(tmp_path.rglob("*")) == before


async def test_a_decision_that_does_not_follow_from_the_facts_is_reported(
    small_log: RecordedLog, tmp_path: Path
) -> None:
    small_log.builder.weights = Weights(headroom=0.9)  # never declared
    await small_log.builder.answer(ask("odd"))
    small_log.builder.sign()

    found = await replay_archive(await exported(small_log, tmp_path / "archive"))

    assert found.mismatches == len(found.reported) == 2


async def test_a_damaged_archive_is_not_replayed(small_log: RecordedLog, tmp_path: Path) -> None:
    archive = await exported(small_log, tmp_path / "archive")
    file = max(archive.rglob("*.*"), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)

    with pytest.raises(ArchiveBroken, match=file.name):
        await replay_archive(archive)


async def test_a_directory_without_an_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(JoulieError, match="nothing-here"):
        await replay_archive(tmp_path / "nothing-here")
