"""Archives: written, verified, replayed and restored; damage is reported with its file."""

import contextlib
import hashlib
import itertools
import os
import random
import re
import resource
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from audit_kit import NoFacts, RecordedLog, restore_into, written_archive
from bus_kit import NOON, ask, node_seen, power
from joulie_audit.archive import archiver, columnar
from joulie_audit.archive.archived_facts import ArchivedFacts
from joulie_audit.archive.archiver import ArchiveResult
from joulie_audit.archive.columnar import Format, Parquet, Segment, has_parquet
from joulie_audit.archive.fact_source import FactSource, PlanFact, plan_facts
from joulie_audit.archive.parts import (
    MANIFEST,
    Archive,
    Part,
    sealed,
)
from joulie_audit.archive.restore import Restored
from joulie_audit.archive.unarchived import HOUR_NS
from joulie_audit.archive.untrusted_files import reading
from joulie_audit.columns.tables import Columns
from joulie_audit.replay.replay import replay
from joulie_audit.verify.verify import Report, verify
from joulie_audit.verify.verify_archive import ArchiveReport, verify_archive
from joulie_bus.errors import ArchiveBroken, NeverArchived, NotArchived
from joulie_bus.runtime.own_files import sync
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.head import Head
from joulie_projections.fold.manifest import Manifest, Range
from joulie_projections.fold.quarantine_quota import BODIES_PER_SUBJECT
from joulie_projections.fold.sequence import FoldCursor, SequencedBatch, sequence
from joulie_projections.history.history import History
from joulie_projections.state.state import ClusterState
from projections_kit import tamper

pytestmark = pytest.mark.anyio
NO_LIMIT = 2**62


def type_of_first(rows: Sequence[object]) -> str:
    return type(rows[0]).__name__


FORMATS = [Segment(), *([Parquet()] if has_parquet() else [])]


async def archived(
    recorded: RecordedLog, to: Path, file_format: Format, before: int = NO_LIMIT
) -> ArchiveResult:
    return await written_archive(recorded, to, file_format, before)


async def verified(recorded: RecordedLog, to: Path) -> ArchiveReport:
    async with recorded.reading() as (history, _):
        return verify_archive(Archive.of(to), recorded.builder.signer.public, history)


@pytest.fixture(params=FORMATS, ids=lambda file_format: file_format.suffix)
def file_format(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    return found


async def test_the_whole_log_is_archived_and_verifies(
    small_log: RecordedLog, tmp_path: Path, file_format: Format
) -> None:
    done = await archived(small_log, tmp_path / "a", file_format)

    assert done == ArchiveResult(parts=2, facts_to=small_log.builder.position, log_to=9)
    assert await verified(small_log, tmp_path / "a") == ArchiveReport(
        2, small_log.builder.position, 9, None, signed_to=9
    )


async def test_a_log_replays_from_its_archive_alone(
    small_log: RecordedLog, tmp_path: Path, file_format: Format
) -> None:
    await archived(small_log, tmp_path / "a", file_format)
    async with small_log.reading() as (history, _):
        done = await replay(history, ArchivedFacts(Archive.of(tmp_path / "a"), NoFacts()))

    assert (done.decisions, done.plans, done.mismatches) == (8, 1, 0)


async def test_plans_in_one_batch_with_other_facts_are_read_from_the_archive(
    small_log: RecordedLog, tmp_path: Path
) -> None:
    await small_log.builder.plan(beside=[node_seen("n5"), power("n1", 400), power("n2", 20)])
    await archived(small_log, tmp_path / "a", Segment())
    async with small_log.reading() as (history, facts):
        archive = ArchivedFacts(Archive.of(tmp_path / "a"), NoFacts())
        found = [plan async for plan in plan_facts(history, archive)]
        expected = [plan async for plan in plan_facts(history, facts)]
        done = await replay(history, archive)
        *_, newest = history.manifests()

    assert (done.plans, done.mismatches) == (2, 0)
    assert found == expected
    assert len(newest.ranges) == 3, "nodes, readings and plans"


async def test_facts_after_the_archive_come_from_the_streams(
    small_log: RecordedLog, tmp_path: Path
) -> None:
    await archived(small_log, tmp_path / "a", Segment())
    await small_log.builder.facts(power("n1", 99))
    async with small_log.reading() as (history, facts):
        done = await replay(history, ArchivedFacts(Archive.of(tmp_path / "a"), facts))

    assert (done.events, done.mismatches) == (small_log.builder.position, 0)


async def test_archiving_continues_after_the_last_part(
    small_log: RecordedLog, tmp_path: Path
) -> None:
    first = await archived(small_log, tmp_path / "a", Segment())
    again = await archived(small_log, tmp_path / "a", Segment())
    await small_log.builder.facts(power("n1", 99))
    await small_log.builder.answer(ask("new"))
    small_log.builder.sign()
    more = await archived(small_log, tmp_path / "a", Segment())

    assert again == first._replace(parts=0)
    assert more == ArchiveResult(2, small_log.builder.position, 11)
    assert (await verified(small_log, tmp_path / "a")).flaw is None


async def test_an_unfinished_hour_is_not_archived(small_log: RecordedLog, tmp_path: Path) -> None:
    this_hour = NOON // HOUR_NS * HOUR_NS

    early = await archived(small_log, tmp_path / "a", Segment(), before=this_hour + HOUR_NS - 1)
    over = await archived(small_log, tmp_path / "a", Segment(), before=this_hour + HOUR_NS)

    assert early == ArchiveResult(0, 0, 0)
    assert over.parts == 2


async def test_each_hour_is_a_part_of_its_own(small_log: RecordedLog, tmp_path: Path) -> None:
    await small_log.builder.facts(power("n1", 99), after_s=3600)

    await archived(small_log, tmp_path / "a", Segment())

    places = [place.parent.name for place, _ in Archive.of(tmp_path / "a").facts]
    assert places == ["17", "18"]


async def test_entries_without_a_covering_head_are_not_archived(
    small_log: RecordedLog, tmp_path: Path
) -> None:
    await small_log.builder.answer(ask("unsigned"))

    done = await archived(small_log, tmp_path / "a", Segment())

    assert done.log_to == 9


async def test_an_unfinished_part_is_written_again(small_log: RecordedLog, tmp_path: Path) -> None:
    await archived(small_log, tmp_path / "a", Segment())
    place, _ = Archive.of(tmp_path / "a").facts[0]
    place.rename(place.with_name(f".{place.name}.new"))  # as after a crash before the rename

    done = await archived(small_log, tmp_path / "a", Segment())

    assert done.parts == 1
    assert (await verified(small_log, tmp_path / "a")).flaw is None


class Killed(BaseException):
    """The process ends here: nothing that follows runs."""


async def test_an_archiver_that_is_killed_at_any_write_leaves_complete_parts_and_continues(
    small_log: RecordedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, writes = small_log.builder.position, 0

    def dying_at(number: int) -> Callable[[Path], None]:
        left = itertools.count(number - 1, -1)

        def synced(path: Path) -> None:
            if next(left) == 0:
                raise Killed
            sync(path)

        return synced

    for number in itertools.count(1):
        to = tmp_path / str(number)
        monkeypatch.setattr(archiver, "sync", dying_at(number))
        try:
            await archived(small_log, to, Segment())
            break  # it had fewer writes
        except Killed:
            writes = number
        assert (await verified(small_log, to)).flaw is None
        monkeypatch.setattr(archiver, "sync", sync)
        done = await archived(small_log, to, Segment())
        assert (done.facts_to, done.log_to) == (end, 9)
        assert (await verified(small_log, to)).flaw is None

    assert writes > 10


async def test_a_disk_that_is_full_is_an_error_that_names_it_and_leaves_a_whole_archive(
    small_log: RecordedLog, tmp_path: Path, file_format: Format
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(NotArchived, match=re.escape(f"{tmp_path / 'a'} cannot be written")):
            await archived(small_log, tmp_path / "a", file_format)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (await verified(small_log, tmp_path / "a")).flaw is None

    done = await archived(small_log, tmp_path / "a", file_format)

    assert done.facts_to == small_log.builder.position


async def test_the_archive_continues_behind_messages_that_aged_out_before(
    small_log: RecordedLog, tmp_path: Path, file_format: Format
) -> None:
    """The cluster is older than its archiver, or the archiver was down for longer than a day."""
    small_log.builder.broker.trim(Stream.TEL, 4)

    done = await archived(small_log, tmp_path / "a", file_format)
    report = await verified(small_log, tmp_path / "a")
    again = await archived(small_log, tmp_path / "a", file_format)

    assert (done.facts_to, done.lost) == (small_log.builder.position, 4)
    assert (report.flaw, report.lost) == (None, 4)
    assert (again.parts, again.lost) == (0, 0)
    async with small_log.reading() as (history, _):
        manifests, facts = list(history.manifests()), archived_facts(tmp_path / "a")
        lost = [each for each in manifests if any(is_lost(place) for place in each.ranges)]
        for each in manifests:
            whole = facts.of(each)
            if each in lost:
                with pytest.raises(NeverArchived, match="had aged out"):
                    await whole
            else:
                assert len(await whole) == each.p_to - each.p_from + 1
        assert lost
        # What had not aged out is kept, and is read where it alone is needed.
        plans = [plan async for plan in plan_facts(history, facts)]
    assert plans == await plans_of(small_log)


def is_lost(place: Range) -> bool:
    return place.stream is Stream.TEL and place.first <= 4


def archived_facts(path: Path) -> ArchivedFacts:
    return ArchivedFacts(Archive.of(path), NoFacts())


async def plans_of(recorded: RecordedLog) -> list[PlanFact]:
    async with recorded.reading() as (history, facts):
        return [plan async for plan in plan_facts(history, facts)]


# --- tampering --------------------------------------------------------------------------------


def files_of(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file())


async def test_one_flipped_byte_in_any_file_is_reported_with_its_file(
    small_log: RecordedLog, tmp_path: Path, file_format: Format
) -> None:
    await archived(small_log, tmp_path / "a", file_format)
    for file in files_of(tmp_path / "a"):
        content = file.read_bytes()
        at = len(content) // 2
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])

        assert str(file) in ((await verified(small_log, tmp_path / "a")).flaw or "")
        file.write_bytes(content)


@pytest.mark.parametrize("name", ["messages.seg", MANIFEST])
@pytest.mark.parametrize(
    ("target", "why"), [("/dev/zero", "it is a link"), ("", "it is no regular file")]
)
async def test_a_file_that_would_never_end_is_reported(
    small_log: RecordedLog, tmp_path: Path, name: str, target: str, why: str
) -> None:
    await archived(small_log, tmp_path / "a", Segment())
    file = next(file for file in files_of(tmp_path / "a") if file.name == name)
    file.unlink()
    if target:
        file.symlink_to(target)
    else:
        os.mkfifo(file)

    assert f"{file} is not what was archived: {why}" in (
        (await verified(small_log, tmp_path / "a")).flaw or ""
    )


async def test_a_file_of_a_terabyte_is_reported(small_log: RecordedLog, tmp_path: Path) -> None:
    """It takes no room on the disk."""
    await archived(small_log, tmp_path / "a", Segment())
    file = next(file for file in files_of(tmp_path / "a") if file.name == "messages.seg")
    os.truncate(file, 1 << 40)

    assert f"{file} is not what was archived: it is larger than 1024 MiB" in (
        (await verified(small_log, tmp_path / "a")).flaw or ""
    )


def sealed_again(place: Path, name: str, content: bytes, renamed: str = "") -> None:
    """An attacker that may write to the archive makes checksum and seal of the last part anew."""
    part = msgspec.json.decode((place / MANIFEST).read_bytes(), type=Part)
    (place / name).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    fresh = [
        replace(each, sha256=digest, name=renamed or name) if each.name == name else each
        for each in part.files
    ]
    (place / MANIFEST).write_bytes(msgspec.json.encode(sealed(replace(part, files=fresh))))


def rows_of(value: object) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(value))


def fifty_million_rows() -> bytes:
    """In 50 KB: the header of a list, and the value that takes one byte."""
    deflate = zlib.compressobj()  # in pieces, so that the test itself stays small
    head = deflate.compress(b"\x81\xa4body\xdd" + (50_000_000).to_bytes(4, "big"))
    rows = [deflate.compress(b"\xc0" * 1_000_000) for _ in range(50)]
    return b"".join([head, *rows, deflate.flush()])


MOST_MIB = 256  # by which a reader of such a file may grow
HOSTILE_ROWS: dict[str, Callable[[Columns], bytes]] = {
    "no compression": lambda _: b"rows",
    "an unfinished stream": lambda rows: rows_of(rows)[:-1],
    "no columns": lambda _: rows_of({}),
    "a list": lambda _: rows_of([1]),
    "numbers as texts": lambda rows: rows_of({name: ["x"] for name in rows}),
    "columns of different lengths": lambda rows: rows_of({**rows, "at": []}),
    "a list in each row": lambda rows: rows_of({name: [[1]] * len(rows[name]) for name in rows}),
    "a thousand columns": lambda rows: rows_of({**rows, **{f"x{n}": [] for n in range(1000)}}),
    "fifty million rows": lambda _: fifty_million_rows(),
    "a million levels": lambda _: zlib.compress(b"\x81\xa1a" + b"\x91" * 1_000_000 + b"\xc0"),
    "nothing in each row": lambda rows: rows_of({name: [None] * len(rows[name]) for name in rows}),
}


@pytest.mark.parametrize("name", ["messages", "batches", "entries", "heads"])
@pytest.mark.parametrize("hostile", HOSTILE_ROWS.values(), ids=HOSTILE_ROWS)
async def test_rows_of_any_kind_with_a_right_checksum_are_one_flaw(
    small_log: RecordedLog, tmp_path: Path, name: str, hostile: Callable[[Columns], bytes]
) -> None:
    await archived(small_log, tmp_path / "a", Segment())
    file = next(file for file in files_of(tmp_path / "a") if file.stem == name)
    sealed_again(file.parent, file.name, hostile(Segment().read(file.read_bytes())))
    before = peak_mib()

    assert str(tmp_path / "a") in (alone(small_log, tmp_path / "a").flaw or "")
    assert peak_mib() - before < MOST_MIB


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def alone(recorded: RecordedLog, to: Path) -> ArchiveReport:
    """On the machine of an auditor, without the database."""
    return verify_archive(Archive.of(to), recorded.builder.signer.public)


async def test_entries_behind_the_last_signed_head_of_an_archive_are_named(
    small_log: RecordedLog, tmp_path: Path
) -> None:
    await archived(small_log, tmp_path / "a", Segment())
    whole = alone(small_log, tmp_path / "a")
    file = next(file for file in files_of(tmp_path / "a") if file.stem == "heads")
    heads = Segment().read(file.read_bytes())
    first = {name: rows[:1] for name, rows in heads.items()}
    sealed_again(file.parent, file.name, rows_of(first))
    shorter = alone(small_log, tmp_path / "a")

    assert (whole.flaw, whole.signed_to) == (None, whole.entries)
    assert (shorter.flaw, shorter.signed_to) == (None, Head(note=heads["note"][0]).pos)


async def test_a_name_that_leads_out_of_the_part_is_a_flaw(
    small_log: RecordedLog, tmp_path: Path
) -> None:
    await archived(small_log, tmp_path / "a", Segment())
    file = next(file for file in files_of(tmp_path / "a") if file.name == "messages.seg")
    sealed_again(file.parent, file.name, file.read_bytes(), renamed="../../secret.seg")

    assert "'../../secret.seg' is no name of a file beside it" in (
        (await verified(small_log, tmp_path / "a")).flaw or ""
    )


async def test_rows_that_inflate_without_end_are_a_flaw(
    small_log: RecordedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columnar, "LARGEST_TABLE", 1 << 20)
    await archived(small_log, tmp_path / "a", Segment())
    file = next(file for file in files_of(tmp_path / "a") if file.name == "messages.seg")
    sealed_again(file.parent, file.name, zlib.compress(bytes(1 << 24)))

    assert "inflates to more than 1 MiB" in ((await verified(small_log, tmp_path / "a")).flaw or "")


@pytest.mark.skipif(not has_parquet(), reason="pyarrow is not installed")
@pytest.mark.parametrize(
    "rows", [["x" * (1 << 16)] * (1 << 9), [7] * (1 << 22), [None] * (1 << 22)], ids=type_of_first
)
async def test_equal_rows_of_a_column_file_without_end_are_a_flaw(
    small_log: RecordedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: Sequence[object]
) -> None:
    """Parquet keeps one value and its number."""
    monkeypatch.setattr(columnar, "LARGEST_TABLE", 1 << 24)
    await archived(small_log, tmp_path / "a", Parquet())
    file = next(file for file in files_of(tmp_path / "a") if file.name == "messages.parquet")
    Parquet().write(file, {"rows": rows}, {})
    sealed_again(file.parent, file.name, file.read_bytes())

    assert file.stat().st_size < 1 << 20
    assert "inflates without end" in ((await verified(small_log, tmp_path / "a")).flaw or "")


@pytest.mark.skipif(not has_parquet(), reason="pyarrow is not installed")
@pytest.mark.parametrize(
    "columns",
    [{"rows": [[1, 2]]}, {"rows": [{"a": 1}]}, {f"c{n}": [1] for n in range(65)}],
    ids=["lists", "structs", "many columns"],
)
async def test_a_column_file_with_other_columns_than_an_archive_has_is_a_flaw(
    small_log: RecordedLog, tmp_path: Path, columns: Columns
) -> None:
    await archived(small_log, tmp_path / "a", Parquet())
    file = next(file for file in files_of(tmp_path / "a") if file.name == "messages.parquet")
    Parquet().write(file, columns, {})
    sealed_again(file.parent, file.name, file.read_bytes())

    flaw = (await verified(small_log, tmp_path / "a")).flaw or ""
    assert "values within values" in flaw or "more than 64 columns" in flaw


@pytest.mark.skipif(not has_parquet(), reason="pyarrow is not installed")
async def test_a_column_file_with_any_bytes_changed_is_read_or_one_flaw(
    small_log: RecordedLog, tmp_path: Path
) -> None:
    """Also its footer, which says how many rows and bytes there are."""
    await archived(small_log, tmp_path / "a", Parquet())
    file = next(file for file in files_of(tmp_path / "a") if file.name == "batches.parquet")
    content, chance = file.read_bytes(), random.Random(3)
    for _ in range(300):
        changed = bytearray(content)
        for _ in range(chance.randint(1, 8)):
            changed[chance.randrange(len(changed))] = chance.choice((0, 0x7F, 0xFF, 0x80))
        with contextlib.suppress(ArchiveBroken), reading(file):
            Parquet().read(bytes(changed))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda part: replace(part, first=9, last=3), "it ends at 3, before it begins"),
        (lambda part: replace(part, files=part.files * 2), "two files of one table"),
        (lambda part: replace(part, created={"x": "y" * (2 << 20)}), "it is larger than 1 MiB"),
    ],
    ids=["positions", "a table twice", "2 MiB"],
)
async def test_a_manifest_of_any_content_with_a_right_seal_is_one_flaw(
    small_log: RecordedLog, tmp_path: Path, change: Callable[[Part], Part], why: str
) -> None:
    await archived(small_log, tmp_path / "a", Segment())
    [place, *_] = sorted((tmp_path / "a/log").glob("*/*/*"))
    part = change(msgspec.json.decode((place / MANIFEST).read_bytes(), type=Part))
    (place / MANIFEST).write_bytes(msgspec.json.encode(sealed(part)))
    place.rename(place.with_name(part.name))

    assert why in (alone(small_log, tmp_path / "a").flaw or "")


async def test_a_missing_file_is_reported(small_log: RecordedLog, tmp_path: Path) -> None:
    await archived(small_log, tmp_path / "a", Segment())
    file = next(file for file in files_of(tmp_path / "a") if file.name == "messages.seg")
    file.unlink()

    assert f"{file} is not what was archived: it is missing" in (
        (await verified(small_log, tmp_path / "a")).flaw or ""
    )


async def test_a_removed_part_is_reported(small_log: RecordedLog, tmp_path: Path) -> None:
    await small_log.builder.facts(power("n1", 99), after_s=3600)
    await archived(small_log, tmp_path / "a", Segment())
    first, _ = Archive.of(tmp_path / "a").facts[0]
    (first / MANIFEST).unlink()

    found = await verified(small_log, tmp_path / "a")

    assert "it does not follow facts 0; a part is missing" in (found.flaw or "")


async def test_no_fact_is_read_from_the_archive_of_another_log(
    small_log: RecordedLog, tmp_path: Path
) -> None:
    await archived(small_log, tmp_path / "a", Segment())
    tamper(small_log.database, "UPDATE batch SET ranges = x'90' WHERE p_to = 12")
    async with small_log.reading() as (history, _):
        with pytest.raises(ArchiveBroken, match="its facts belong to another log"):
            await replay(history, ArchivedFacts(Archive.of(tmp_path / "a"), NoFacts()))


async def test_the_archive_of_another_log_is_a_flaw(
    small_log: RecordedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await archived(small_log, tmp_path / "a", Segment())
    monkeypatch.setattr(History, "manifests", _of_another_log)

    found = await verified(small_log, tmp_path / "a")

    assert "its facts belong to another log" in (found.flaw or "")


def _of_another_log(history: History, first: int = 1, last: int = 1) -> object:
    root = bytes(32)
    return iter([Manifest(first, last, (), root, root, root, b"another", 0)])


def test_a_directory_without_an_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveBroken, match="there is neither facts/ nor log/ in it"):
        Archive.of(tmp_path)


async def test_a_damaged_part_is_not_read(small_log: RecordedLog, tmp_path: Path) -> None:
    await archived(small_log, tmp_path / "a", Segment())
    file = next(file for file in files_of(tmp_path / "a") if file.name == "messages.seg")
    file.write_bytes(file.read_bytes()[:-1])
    async with small_log.reading() as (history, facts):
        broken: FactSource = ArchivedFacts(Archive.of(tmp_path / "a"), facts)

        with pytest.raises(ArchiveBroken, match="its SHA-256 does not match"):
            await replay(history, broken)


# --- restore ----------------------------------------------------------------------------------


async def test_a_restored_database_equals_the_original(
    small_log: RecordedLog, tmp_path: Path, file_format: Format
) -> None:
    await archived(small_log, tmp_path / "a", file_format)
    done = restore_into(tmp_path / "a", tmp_path / "new.db")
    with History.of(tmp_path / "new.db") as after:
        async with small_log.reading() as (before, _):
            assert done == Restored(small_log.builder.position, 9)
            assert list(after.entries()) == list(before.entries())
            assert list(after.manifests()) == list(before.manifests())
            assert after.heads() == before.heads()
            assert after.digests() == before.digests()


async def test_a_restored_log_verifies_and_replays(small_log: RecordedLog, tmp_path: Path) -> None:
    await archived(small_log, tmp_path / "a", Segment())
    restore_into(tmp_path / "a", tmp_path / "new.db")
    with History.of(tmp_path / "new.db") as history:
        report = verify(history, small_log.builder.signer.public, ())
        done = await replay(history, ArchivedFacts(Archive.of(tmp_path / "a"), NoFacts()))

    assert report == Report(9, 2, 4, 0, [], None)
    assert (done.decisions, done.mismatches) == (8, 0)


async def test_quarantined_facts_stay_quarantined_in_a_restored_log(
    small_log: RecordedLog, tmp_path: Path, file_format: Format
) -> None:
    await small_log.builder.quarantined_facts(power("n1", 777), power("n2", 778))
    await small_log.builder.answer(ask("after"))
    small_log.builder.sign()
    await archived(small_log, tmp_path / "a", file_format)
    restore_into(tmp_path / "a", tmp_path / "new.db")
    with History.of(tmp_path / "new.db") as history:
        done = await replay(history, ArchivedFacts(Archive.of(tmp_path / "a"), NoFacts()))
        async with small_log.reading() as (before, _):
            assert history.quarantined() == before.quarantined() != []

    assert (done.decisions, done.mismatches) == (10, 0)


async def test_quarantined_facts_without_bodies_stay_quarantined_in_a_restored_log(
    small_log: RecordedLog, tmp_path: Path, file_format: Format
) -> None:
    await small_log.builder.quarantined_facts(
        *(power("n1", watts) for watts in range(1, BODIES_PER_SUBJECT + 51))
    )
    await small_log.builder.answer(ask("after"))
    small_log.builder.sign()
    await archived(small_log, tmp_path / "a", file_format)
    restore_into(tmp_path / "a", tmp_path / "new.db")
    with History.of(tmp_path / "new.db") as history:
        done = await replay(history, ArchivedFacts(Archive.of(tmp_path / "a"), NoFacts()))
        kept, aside = history.quarantined(), history.set_aside()
        async with small_log.reading() as (before, _):
            assert (before.quarantined(), before.set_aside()) == (kept, aside)

    assert (len(kept), len(aside)) == (BODIES_PER_SUBJECT + 1, BODIES_PER_SUBJECT + 50)
    assert done.mismatches == 0


async def test_the_archive_keeps_the_subject_of_each_fact(
    small_log: RecordedLog, tmp_path: Path, file_format: Format
) -> None:
    await archived(small_log, tmp_path / "a", file_format)
    async with small_log.reading() as (history, facts):
        known = [record.subject for m in history.manifests() for record in await facts.of(m)]

    archive = Archive.of(tmp_path / "a")
    kept = [record for place in archive.facts for record in archive.read_facts(*place).records]

    assert [record.subject for record in kept] == known
    assert "" not in known


async def test_a_restored_log_has_snapshots(
    small_log: RecordedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joulie_audit.archive.fact_restore.SNAPSHOT_EVERY", 5)
    await archived(small_log, tmp_path / "a", Segment())
    restore_into(tmp_path / "a", tmp_path / "new.db")
    with History.of(tmp_path / "new.db") as history:
        report = verify(history, small_log.builder.signer.public, ())

        assert history.starts() == [8, 19]
        assert report == Report(9, 2, 4, 2, [], None)


async def test_facts_that_fold_to_another_state_are_not_restored(
    small_log: RecordedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await archived(small_log, tmp_path / "a", Segment())
    monkeypatch.setattr("joulie_audit.archive.fact_restore.sequence", _folded_differently)

    with pytest.raises(ArchiveBroken, match="its facts fold to another state at"):
        restore_into(tmp_path / "a", tmp_path / "new.db")


def _folded_differently(
    cluster_state: ClusterState, cursor: FoldCursor, records: Sequence[Record], *rest: Any
) -> SequencedBatch:
    return sequence(cluster_state, cursor, [r._replace(at=r.at + 1) for r in records], *rest)


async def test_archived_files_are_readable_by_their_owner_only(
    small_log: RecordedLog, tmp_path: Path, file_format: Format
) -> None:
    place = tmp_path / "a"
    place.mkdir(mode=0o755)
    place.chmod(0o755)
    await archived(small_log, place, file_format)
    files = [path for path in place.rglob("*") if path.is_file()]
    fresh = {path.stat().st_mode & 0o777 for path in files}
    for path in files:
        path.chmod(0o644)
    await archived(small_log, place, file_format)

    assert (len(files) > 2, fresh) == (True, {0o600})
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
