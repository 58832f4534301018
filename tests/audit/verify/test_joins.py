"""Each message of a stream lies in exactly one manifest: one that does not is found by all."""

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import msgspec
import pytest
from sqlalchemy import Engine

from audit_kit import NAMES, RecordedLog, restore_into, written_archive
from bus_kit import node_seen, power
from joulie_audit.archive.parts import Archive
from joulie_audit.replay.archived import replay_alone
from joulie_audit.replay.replay import Scope, replay
from joulie_audit.verify.verify import verify
from joulie_audit.verify.verify_archive import verify_archive
from joulie_bus.errors import ArchiveBroken, PassedOver
from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.commit import Input
from joulie_projections.fold.joins import Joins
from joulie_projections.fold.manifest import Range
from joulie_projections.history.history import History
from joulie_projections.projector.rebuild import rebuild
from projections_kit import tamper

pytestmark = pytest.mark.anyio
PASSED_OVER = "message 9 of JOULIE_TEL is in no manifest: passed over before position 25"
READ_TWICE = "message 8 of JOULIE_TEL is in two manifests, the second time from position 25 on"


@pytest.fixture(params=[(1, PASSED_OVER), (-1, READ_TWICE)], ids=["passed-over", "read-twice"])
async def flaw(request: pytest.FixtureRequest, small_log: RecordedLog) -> str:
    """Eight readings, a reading that is passed over or read twice, and further ones."""
    messages: int
    what: str
    messages, what = request.param
    made = small_log.builder
    if messages > 0:
        await made.publish_facts(power("n1", 77))
    made.read_on(Stream.TEL, messages)
    await made.facts(*(power(name, 80) for name in NAMES), node_seen("n9"))
    await made.facts(power("n1", 81))
    return what


async def archived(recorded: RecordedLog, to: Path) -> None:
    await written_archive(recorded, to)


@pytest.fixture
async def archive(flaw: str, small_log: RecordedLog, tmp_path: Path) -> Path:
    """By an archiver that does not look."""
    with mock.patch.object(Joins, "flaw", return_value=""):
        await archived(small_log, tmp_path / "archive")
    return tmp_path / "archive"


async def test_verify_names_the_message(flaw: str, small_log: RecordedLog) -> None:
    async with small_log.reading() as (history, _):
        report = verify(history, small_log.builder.signer.public, [])

    assert report.flaw is not None
    assert report.flaw.what == flaw


async def test_replay_names_the_message(flaw: str, small_log: RecordedLog) -> None:
    async with small_log.reading() as (history, facts):
        done = await replay(history, facts)

    assert [each.what for each in done.reported] == [flaw]


async def test_replay_from_a_snapshot_names_the_message_behind_it_and_none_before(
    small_log: RecordedLog,
) -> None:
    made = small_log.builder
    at = made.snapshot()
    await made.publish_facts(power("n1", 77))
    made.read_on(Stream.TEL, 1)
    await made.facts(power("n2", 80))
    later = made.snapshot()
    await made.facts(power("n3", 81))

    async with small_log.reading() as (history, facts):
        first = await replay(history, facts, Scope(at + 1, later))
        last = await replay(history, facts, Scope(later + 1))

    assert [each.what for each in first.reported] == [PASSED_OVER.replace("25", "24")]
    assert last.reported == []


async def test_it_is_not_archived(flaw: str, small_log: RecordedLog, tmp_path: Path) -> None:
    with pytest.raises(PassedOver, match=flaw):
        await archived(small_log, tmp_path / "a")

    assert Archive.of(tmp_path / "a").facts == []


async def test_it_is_not_archived_behind_what_was_archived_before(
    small_log: RecordedLog, tmp_path: Path
) -> None:
    await archived(small_log, tmp_path / "a")
    await small_log.builder.facts(node_seen("n9"))  # a part without a reading
    await archived(small_log, tmp_path / "a")
    await small_log.builder.publish_facts(power("n1", 77))
    small_log.builder.read_on(Stream.TEL, 1)
    await small_log.builder.facts(power("n1", 78))

    with pytest.raises(PassedOver, match="message 9 of JOULIE_TEL is in no manifest"):
        await archived(small_log, tmp_path / "a")

    assert len(Archive.of(tmp_path / "a").facts) == 2


async def test_verify_finds_it_in_an_archive(
    flaw: str, archive: Path, small_log: RecordedLog
) -> None:
    found = verify_archive(Archive.of(archive), small_log.builder.signer.public)

    assert flaw in str(found.flaw)


@pytest.mark.usefixtures("archive")
async def test_an_archive_with_it_is_not_restored(flaw: str, tmp_path: Path) -> None:
    with pytest.raises(ArchiveBroken, match=flaw):
        restore_into(tmp_path / "archive", tmp_path / "new.db")
    with pytest.raises(ArchiveBroken, match=flaw):
        await replay_alone(tmp_path / "archive")


async def test_a_log_with_it_is_not_rebuilt(
    flaw: str, small_log: RecordedLog, writer: Engine
) -> None:
    with pytest.raises(PassedOver, match=f"{flaw}. Nothing was rebuilt"):
        await rebuild(small_log.builder.bus, writer, "rebuild")


# --- where a log begins and ends --------------------------------------------------------------


@pytest.mark.parametrize(
    ("forge", "what"),
    [
        (lambda place: Range(place.stream, place.first + 1, place.last + 1), "1 of JOULIE_TEL"),
        (lambda place: Range(place.stream, place.first - 1, place.last - 1), "0 of JOULIE_TEL"),
    ],
)
async def test_the_first_message_of_a_stream_is_in_a_manifest(
    small_log: RecordedLog, forge: Callable[[Range], Range], what: str
) -> None:
    async with small_log.reading() as (history, _):
        joins = Joins()
        first = next(each for each in history.manifests() if each.ranges[0].stream is Stream.TEL)

        assert joins.flaw(first) == ""
        forged = first._replace(ranges=(forge(first.ranges[0]),))
        assert what in Joins().flaw(forged)


async def test_a_reader_that_is_not_where_the_manifests_end_is_a_flaw(
    small_log: RecordedLog,
) -> None:
    with History.of(small_log.database) as history:
        checkpoint = history.checkpoint()
        assert checkpoint is not None
    inputs = {**checkpoint.inputs, Stream.TEL: Input("", 7)}
    changed = "UPDATE checkpoint SET inputs = ? WHERE name = 'projector'"
    tamper(small_log.database, changed, msgspec.msgpack.encode(inputs))

    async with small_log.reading() as (history, _):
        report = verify(history, small_log.builder.signer.public, [])

    assert report.flaw is not None
    assert report.flaw.what == "JOULIE_TEL was read up to 7, and the manifests end at 8"
