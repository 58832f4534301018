"""What is archived is what was there; what is not is named by its file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from joulie_audit.archive.archiver import HOUR_NS, Archived, Archiver
from joulie_audit.archive.columnar import Format, Parquet, Segment, has_parquet
from joulie_audit.archive.fact_source import Facts, plan_facts
from joulie_audit.archive.parts import (
    MANIFEST,
    Archive,
    ArchivedFacts,
    FactPart,
    columns_of_facts,
    facts_of_columns,
)
from joulie_audit.archive.restore import Restored
from joulie_audit.replay.replay import replay
from joulie_audit.testing import Gone, Past, restored
from joulie_audit.verify.verify import Report, verify
from joulie_audit.verify.verify_archive import ArchiveReport, verify_archive
from joulie_bus.errors import ArchiveBroken
from joulie_bus.streams.records import Record
from joulie_bus.testing import NOON, ask, node_seen, power
from joulie_projections.fold.manifest import Manifest
from joulie_projections.fold.quarantine_quota import BODIES_PER_SUBJECT
from joulie_projections.fold.sequence import FoldCursor, SequencedBatch, sequence
from joulie_projections.history.history import History
from joulie_projections.state.state import ClusterState
from joulie_projections.testing import tamper

pytestmark = pytest.mark.anyio
FOR_EVER = 2**62
FORMATS = [Segment(), *([Parquet()] if has_parquet() else [])]


async def archived(past: Past, to: Path, form: Format, before: int = FOR_EVER) -> Archived:
    async with past.reading() as (history, facts):
        return await Archiver(to, form, before).run(history, facts)


async def looked_at(past: Past, to: Path) -> ArchiveReport:
    async with past.reading() as (history, _):
        return verify_archive(Archive.of(to), past.maker.signer.public, history)


@pytest.fixture(params=FORMATS, ids=lambda form: form.suffix)
def form(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    return found


async def test_everything_is_archived_and_is_what_was_written(
    small: Past, tmp_path: Path, form: Format
) -> None:
    done = await archived(small, tmp_path / "a", form)

    assert done == Archived(parts=2, facts_to=small.maker.position, log_to=9)
    assert await looked_at(small, tmp_path / "a") == ArchiveReport(2, small.maker.position, 9, None)


async def test_a_log_replays_from_its_archive_alone(
    small: Past, tmp_path: Path, form: Format
) -> None:
    await archived(small, tmp_path / "a", form)
    async with small.reading() as (history, _):
        done = await replay(history, ArchivedFacts(Archive.of(tmp_path / "a"), Gone()))

    assert (done.decisions, done.plans, done.mismatches) == (8, 1, 0)


async def test_plans_that_came_in_one_batch_with_other_facts_are_found_in_the_archive(
    small: Past, tmp_path: Path
) -> None:
    await small.maker.plan(beside=[node_seen("n5"), power("n1", 400), power("n2", 20)])
    await archived(small, tmp_path / "a", Segment())
    async with small.reading() as (history, facts):
        archive = ArchivedFacts(Archive.of(tmp_path / "a"), Gone())
        found = [plan async for plan in plan_facts(history, archive)]
        expected = [plan async for plan in plan_facts(history, facts)]
        done = await replay(history, archive)
        *_, newest = history.manifests()

    assert (done.plans, done.mismatches) == (2, 0)
    assert found == expected
    assert len(newest.ranges) == 3, "of nodes, of readings and of plans"


async def test_what_is_not_archived_yet_comes_from_the_streams(small: Past, tmp_path: Path) -> None:
    await archived(small, tmp_path / "a", Segment())
    await small.maker.facts(power("n1", 99))
    async with small.reading() as (history, facts):
        done = await replay(history, ArchivedFacts(Archive.of(tmp_path / "a"), facts))

    assert (done.events, done.mismatches) == (small.maker.position, 0)


async def test_archiving_goes_on_where_it_was(small: Past, tmp_path: Path) -> None:
    first = await archived(small, tmp_path / "a", Segment())
    again = await archived(small, tmp_path / "a", Segment())
    await small.maker.facts(power("n1", 99))
    await small.maker.answer(ask("new"))
    small.maker.sign()
    more = await archived(small, tmp_path / "a", Segment())

    assert again == first._replace(parts=0)
    assert more == Archived(2, small.maker.position, 11)
    assert (await looked_at(small, tmp_path / "a")).flaw is None


async def test_an_hour_that_is_not_over_waits(small: Past, tmp_path: Path) -> None:
    this_hour = NOON // HOUR_NS * HOUR_NS

    early = await archived(small, tmp_path / "a", Segment(), before=this_hour + HOUR_NS - 1)
    over = await archived(small, tmp_path / "a", Segment(), before=this_hour + HOUR_NS)

    assert early == Archived(0, 0, 0)
    assert over.parts == 2


async def test_each_hour_is_a_part_of_its_own(small: Past, tmp_path: Path) -> None:
    await small.maker.facts(power("n1", 99), after_s=3600)

    await archived(small, tmp_path / "a", Segment())

    places = [place.parent.name for place, _ in Archive.of(tmp_path / "a").facts]
    assert places == ["17", "18"]


async def test_entries_that_no_head_covers_wait(small: Past, tmp_path: Path) -> None:
    await small.maker.answer(ask("unsigned"))

    done = await archived(small, tmp_path / "a", Segment())

    assert done.log_to == 9


async def test_a_half_written_part_is_written_again(small: Past, tmp_path: Path) -> None:
    await archived(small, tmp_path / "a", Segment())
    place, _ = Archive.of(tmp_path / "a").facts[0]
    place.rename(place.with_name(f".{place.name}.new"))  # the plug was pulled before the renaming

    done = await archived(small, tmp_path / "a", Segment())

    assert done.parts == 1
    assert (await looked_at(small, tmp_path / "a")).flaw is None


# --- tampering --------------------------------------------------------------------------------


def files_of(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file())


async def test_one_flipped_byte_in_any_file_is_named_by_its_file(
    small: Past, tmp_path: Path, form: Format
) -> None:
    await archived(small, tmp_path / "a", form)
    for file in files_of(tmp_path / "a"):
        content = file.read_bytes()
        at = len(content) // 2
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])

        assert str(file) in ((await looked_at(small, tmp_path / "a")).flaw or "")
        file.write_bytes(content)


async def test_a_missing_file_is_named(small: Past, tmp_path: Path) -> None:
    await archived(small, tmp_path / "a", Segment())
    file = next(file for file in files_of(tmp_path / "a") if file.name == "facts.seg")
    file.unlink()

    assert f"{file} is not what was archived: it is missing" in (
        (await looked_at(small, tmp_path / "a")).flaw or ""
    )


async def test_a_part_that_was_taken_away_is_missed(small: Past, tmp_path: Path) -> None:
    await small.maker.facts(power("n1", 99), after_s=3600)
    await archived(small, tmp_path / "a", Segment())
    first, _ = Archive.of(tmp_path / "a").facts[0]
    (first / MANIFEST).unlink()

    found = await looked_at(small, tmp_path / "a")

    assert "it does not follow facts 0; one is missing" in (found.flaw or "")


async def test_no_fact_is_taken_from_the_archive_of_another_log(
    small: Past, tmp_path: Path
) -> None:
    await archived(small, tmp_path / "a", Segment())
    tamper(small.database, "UPDATE batch SET ranges = x'90' WHERE p_to = 12")
    async with small.reading() as (history, _):
        with pytest.raises(ArchiveBroken, match="its facts are those of another log"):
            await replay(history, ArchivedFacts(Archive.of(tmp_path / "a"), Gone()))


async def test_the_archive_of_another_log_is_told(
    small: Past, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await archived(small, tmp_path / "a", Segment())
    monkeypatch.setattr(History, "manifests", _of_another_log)

    found = await looked_at(small, tmp_path / "a")

    assert "its facts are those of another log" in (found.flaw or "")


def _of_another_log(history: History, first: int = 1, last: int = 1) -> object:
    root = bytes(32)
    return iter([Manifest(first, last, (), root, root, root, b"another", 0)])


def test_a_folder_that_is_no_archive_is_told(tmp_path: Path) -> None:
    with pytest.raises(ArchiveBroken, match="there is neither facts/ nor log/ in it"):
        Archive.of(tmp_path)


async def test_nothing_of_a_broken_part_is_used(small: Past, tmp_path: Path) -> None:
    await archived(small, tmp_path / "a", Segment())
    file = next(file for file in files_of(tmp_path / "a") if file.name == "facts.seg")
    file.write_bytes(file.read_bytes()[:-1])
    async with small.reading() as (history, facts):
        broken: Facts = ArchivedFacts(Archive.of(tmp_path / "a"), facts)

        with pytest.raises(ArchiveBroken, match="its sha256 is another one"):
            await replay(history, broken)


# --- and back ---------------------------------------------------------------------------------


async def test_an_archive_becomes_the_database_that_it_was(
    small: Past, tmp_path: Path, form: Format
) -> None:
    await archived(small, tmp_path / "a", form)
    done = restored(tmp_path / "a", tmp_path / "new.db")
    with History.of(tmp_path / "new.db") as after:
        async with small.reading() as (before, _):
            assert done == Restored(small.maker.position, 9)
            assert list(after.entries()) == list(before.entries())
            assert list(after.manifests()) == list(before.manifests())
            assert after.heads() == before.heads()
            assert after.digests() == before.digests()


async def test_a_restored_log_verifies_and_replays(small: Past, tmp_path: Path) -> None:
    await archived(small, tmp_path / "a", Segment())
    restored(tmp_path / "a", tmp_path / "new.db")
    with History.of(tmp_path / "new.db") as history:
        report = verify(history, small.maker.signer.public, ())
        done = await replay(history, ArchivedFacts(Archive.of(tmp_path / "a"), Gone()))

    assert report == Report(9, 2, 4, 0, [], None)
    assert (done.decisions, done.mismatches) == (8, 0)


async def test_what_was_set_aside_stays_aside_in_a_restored_log(
    small: Past, tmp_path: Path, form: Format
) -> None:
    await small.maker.poisoned(power("n1", 777), power("n2", 778))
    await small.maker.answer(ask("after"))
    small.maker.sign()
    await archived(small, tmp_path / "a", form)
    restored(tmp_path / "a", tmp_path / "new.db")
    with History.of(tmp_path / "new.db") as history:
        done = await replay(history, ArchivedFacts(Archive.of(tmp_path / "a"), Gone()))
        async with small.reading() as (before, _):
            assert history.quarantined() == before.quarantined() != []

    assert (done.decisions, done.mismatches) == (10, 0)


async def test_what_was_set_aside_without_its_body_stays_aside_in_a_restored_log(
    small: Past, tmp_path: Path, form: Format
) -> None:
    await small.maker.poisoned(*(power("n1", watts) for watts in range(1, BODIES_PER_SUBJECT + 51)))
    await small.maker.answer(ask("after"))
    small.maker.sign()
    await archived(small, tmp_path / "a", form)
    restored(tmp_path / "a", tmp_path / "new.db")
    with History.of(tmp_path / "new.db") as history:
        done = await replay(history, ArchivedFacts(Archive.of(tmp_path / "a"), Gone()))
        kept, aside = history.quarantined(), history.set_aside()
        async with small.reading() as (before, _):
            assert (before.quarantined(), before.set_aside()) == (kept, aside)

    assert (len(kept), len(aside)) == (BODIES_PER_SUBJECT + 1, BODIES_PER_SUBJECT + 50)
    assert done.mismatches == 0


async def test_an_archive_from_before_anything_was_set_aside_is_still_read(
    small: Past, tmp_path: Path
) -> None:
    async with small.reading() as (history, facts):
        records = [record for m in history.manifests() for record in await facts.of(m)]
        whole = FactPart(list(history.manifests()), records, [])

    tables = columns_of_facts(whole)
    del tables["aside"]

    assert facts_of_columns(tables) == whole


async def test_the_archive_keeps_the_subject_of_each_fact(
    small: Past, tmp_path: Path, form: Format
) -> None:
    await archived(small, tmp_path / "a", form)
    async with small.reading() as (history, facts):
        known = [record.subject for m in history.manifests() for record in await facts.of(m)]

    archive = Archive.of(tmp_path / "a")
    kept = [record for place in archive.facts for record in archive.read_facts(*place).records]

    assert [record.subject for record in kept] == known
    assert "" not in known


async def test_an_archive_without_subjects_is_read_with_unknown_subjects(small: Past) -> None:
    async with small.reading() as (history, facts):
        records = [record for m in history.manifests() for record in await facts.of(m)]
        whole = FactPart(list(history.manifests()), records, [])

    tables = columns_of_facts(whole)
    tables["facts"] = {k: v for k, v in tables["facts"].items() if k != "subject"}

    assert [r.subject for r in facts_of_columns(tables).records] == [""] * len(records)


async def test_a_restored_log_has_snapshots_to_travel_from(
    small: Past, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joulie_audit.archive.restore.EVERY", 5)
    await archived(small, tmp_path / "a", Segment())
    restored(tmp_path / "a", tmp_path / "new.db")
    with History.of(tmp_path / "new.db") as history:
        report = verify(history, small.maker.signer.public, ())

        assert history.starts() == [8, 19]
        assert report == Report(9, 2, 4, 2, [], None)


async def test_facts_that_fold_otherwise_are_not_restored(
    small: Past, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await archived(small, tmp_path / "a", Segment())
    monkeypatch.setattr("joulie_audit.archive.restore.sequence", _otherwise)

    with pytest.raises(ArchiveBroken, match="its facts give another state at"):
        restored(tmp_path / "a", tmp_path / "new.db")


def _otherwise(
    cluster_state: ClusterState, cursor: FoldCursor, records: Sequence[Record], *rest: Any
) -> SequencedBatch:
    return sequence(cluster_state, cursor, [r._replace(at=r.at + 1) for r in records], *rest)


async def test_what_is_archived_is_its_owners_alone_also_what_was_there_before(
    small: Past, tmp_path: Path, form: Format
) -> None:
    place = tmp_path / "a"
    place.mkdir(mode=0o755)
    place.chmod(0o755)
    await archived(small, place, form)
    files = [path for path in place.rglob("*") if path.is_file()]
    fresh = {path.stat().st_mode & 0o777 for path in files}
    for path in files:
        path.chmod(0o644)
    await archived(small, place, form)

    assert (len(files) > 2, fresh) == (True, {0o600})
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
