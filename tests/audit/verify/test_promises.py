"""What a replica promised and the log lacks, or has with another content, is reported."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from audit_kit import RecordedLog
from joulie_audit.chain.entries import EntryRange, WorkerOptions
from joulie_audit.chain.promises import Unkept
from joulie_audit.verify.verify import ALL_ENTRIES, Report, verify
from joulie_bus.events import DecisionsDropped
from joulie_bus.streams.records import Message
from joulie_projections.chain.entry import entry_of
from joulie_projections.chain.sequence_gaps import Gap, GapKind
from promising import Replica, changed

pytestmark = pytest.mark.anyio
LIFE, NEXT = "extender-0:b1", "extender-0:b2"


def lived(directory: Path, boot: str = "b1", *, ends: bool = True) -> list[Message]:
    """The messages of a life: a key, five decisions in three seconds, and four promises."""
    with Replica.living(directory, boot) as replica:
        replica.decides(1, 2)
        replica.decides(3, 4, after_s=1.0)
        replica.decides(5, after_s=1.0)
        if ends:
            replica.promised.sign(at_once=True)
        published = replica.published
        replica.ships(len(published))
    return [each for each in published if each.id.startswith(f"extender-0:{boot}:")]


async def report_of(
    recorded: RecordedLog,
    messages: Sequence[Message],
    entry_range: EntryRange = ALL_ENTRIES,
    jobs: int = 1,
) -> Report:
    await recorded.builder.write(messages, entry_of)
    recorded.builder.sign()
    async with recorded.reading() as (history, _):
        workers = WorkerOptions(recorded.database, jobs)
        return verify(history, recorded.builder.signer.public, (), entry_range, workers)


def numbered(messages: Sequence[Message], number: int) -> int:
    [at] = [at for at, each in enumerate(messages) if each.id.endswith(f":{number}")]
    return at


def without(messages: Sequence[Message], *numbers: int) -> list[Message]:
    left_out = {f":{number}" for number in numbers}
    return [each for each in messages if f":{each.id.rpartition(':')[2]}" not in left_out]


def with_another(messages: Sequence[Message], number: int) -> list[Message]:
    """One message is about another pod, under the same id."""
    at = numbered(messages, number)
    made = messages[at]._replace(data=changed(messages[at].data))
    return [*messages[:at], made, *messages[at + 1 :]]


async def test_a_log_with_all_that_was_promised_has_no_flaw(
    recorded: RecordedLog, tmp_path: Path
) -> None:
    first, second = lived(tmp_path), lived(tmp_path, "b2")
    report = await report_of(recorded, [*first, *second])

    assert (report.flaw, report.gaps, report.unkept) == (None, [], ())


@pytest.mark.parametrize("jobs", [1, 3])
async def test_an_entry_that_was_left_out_was_promised(
    jobs: int, recorded: RecordedLog, tmp_path: Path
) -> None:
    report = await report_of(recorded, without(lived(tmp_path), 3), jobs=jobs)

    assert report.flaw is None
    assert report.gaps == [Gap(LIFE, 3, 3, GapKind.MISSING)]
    assert report.unkept == (Unkept(LIFE, "number 3, which it promised, are not in the log"),)


@pytest.mark.parametrize("jobs", [1, 3])
async def test_an_entry_with_another_content_is_not_what_was_promised(
    jobs: int, recorded: RecordedLog, tmp_path: Path
) -> None:
    report = await report_of(recorded, with_another(lived(tmp_path), 3), jobs=jobs)

    assert (report.flaw, report.gaps) == (None, [])
    [unkept] = report.unkept
    assert unkept.what.startswith("the entries 3 and 4 of it do not follow each other")


async def test_the_last_entries_of_a_life_are_promised_by_the_next_one(
    recorded: RecordedLog, tmp_path: Path
) -> None:
    killed = lived(tmp_path, ends=False)
    first = len(killed) - 1
    report = await report_of(recorded, [*killed[:-2], *lived(tmp_path, "b2")])

    assert report.gaps == [Gap(LIFE, first, first + 1, GapKind.MISSING)]


async def test_what_a_replica_lost_and_declared_is_a_note(
    recorded: RecordedLog, tmp_path: Path
) -> None:
    with Replica.living(tmp_path) as replica:
        replica.decides(1, 2)
        replica.promised.append(DecisionsDropped(count=1, why="damaged", promised=1))
        messages = replica.published
    report = await report_of(recorded, without(messages, 3))

    assert report.gaps == [Gap(LIFE, 3, 3, GapKind.LOST)]
    assert (report.flaw, report.unkept) == (None, ())


async def test_a_declared_loss_hides_no_other_one(recorded: RecordedLog, tmp_path: Path) -> None:
    with Replica.living(tmp_path) as replica:
        replica.decides(1, 2, 3)
        replica.promised.append(DecisionsDropped(count=1, why="damaged", promised=1))
        messages = replica.published
    report = await report_of(recorded, without(messages, 2, 3))

    assert report.gaps == [Gap(LIFE, 2, 3, GapKind.MISSING)]
    assert len(report.unkept) == 1


async def test_what_a_full_disk_dropped_was_not_promised(
    recorded: RecordedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Replica.living(tmp_path) as replica:
        replica.decides(1)
        replica.drops(2, 3, patch=monkeypatch)
        messages = replica.published
    report = await report_of(recorded, messages)

    assert report.gaps == [Gap(LIFE, 3, 4, GapKind.DROPPED)]
    assert report.unkept == ()


async def test_a_life_without_its_key_is_reported(recorded: RecordedLog, tmp_path: Path) -> None:
    report = await report_of(recorded, lived(tmp_path)[1:])

    assert [unkept.what.split(",")[0] for unkept in report.unkept] == [
        "number 1",
        "the key of the promise in entry 9 is in no entry",
    ]


async def test_a_key_that_signed_another_life_signs_not_this_one(
    recorded: RecordedLog, tmp_path: Path
) -> None:
    """The entries of a life and its key can be exchanged, and its promises cannot."""
    ours, theirs = lived(tmp_path / "ours"), lived(tmp_path / "theirs")
    report = await report_of(recorded, [theirs[0], *ours[1:]])

    assert [unkept.what for unkept in report.unkept] == [
        "the entries 1 and 2 of it do not follow each other as it promised",
        "the promise in entry 10 is not signed by its key",
    ]


async def test_a_part_of_a_log_takes_the_key_from_before_it(
    recorded: RecordedLog, tmp_path: Path
) -> None:
    report = await report_of(recorded, lived(tmp_path), EntryRange(first=4))

    assert (report.entries, report.gaps, report.unkept) == (7, [], ())


async def test_a_message_that_became_an_unreadable_entry_is_not_missing(
    recorded: RecordedLog, tmp_path: Path
) -> None:
    """Such as one of a newer version."""
    messages = lived(tmp_path)
    at = numbered(messages, 3)
    odd = messages[at]._replace(subject="joulie.dec.test.another")
    report = await report_of(recorded, [*messages[:at], odd, *messages[at + 1 :]])

    assert report.gaps == [Gap(LIFE, 3, 3, GapKind.DROPPED)]
    assert report.unkept == ()
