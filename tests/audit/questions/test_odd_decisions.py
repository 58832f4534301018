"""Entries that do not agree with themselves, as a writer of the database could insert them."""

from pathlib import Path

import msgspec
import pytest

from audit_kit import RecordedLog, about_node, written_archive
from bus_kit import one_of_each
from joulie_audit.archive.parts import Archive
from joulie_audit.questions.explain import attempts_of, explain_pod, read
from joulie_audit.replay.replay import replay
from joulie_audit.verify.verify import verify
from joulie_audit.verify.verify_archive import verify_archive
from joulie_bus.errors import NotInTheLog
from joulie_bus.events import codec
from joulie_bus.streams.records import Record
from joulie_projections.chain.entry import Entry, EntryFields, entry_of, header_of
from odd_decisions import DISAGREEING, WILD, odd_messages

pytestmark = pytest.mark.anyio
NO_LIMIT = 2**62
POD = next(each for each in one_of_each() if each.TYPE == "decision.filter").key


def inserted(record: Record) -> Entry:
    """With the header of a decision; the projector writes an unreadable entry."""
    envelope = codec.open_envelope(record.data, "it")
    decision = msgspec.msgpack.decode(envelope.data)
    pod, basis = decision["pod"], decision["basis"]
    name = f"{pod['namespace']}/{pod['name']}"
    fields = EntryFields(envelope.id, envelope.type, pod["uid"], name, basis["view"], basis["now"])
    return Entry(fields, header_of(fields) + record.data)


@pytest.fixture
async def odd_log(small_log: RecordedLog) -> RecordedLog:
    made = small_log.builder
    await made.write(odd_messages(DISAGREEING), inserted)
    made.sign()
    return small_log


async def test_readers_treat_them_as_unreadable(odd_log: RecordedLog) -> None:
    async with odd_log.reading() as (history, facts):
        odd = [entry for entry in history.entries() if ":odd:" in entry.event_id]
        assert [read(entry) for entry in odd] == [None] * len(DISAGREEING)
        assert not any(map(about_node(history, "n4"), odd))
        assert attempts_of(history, POD) == []
        with pytest.raises(NotInTheLog, match="never filtered or scored"):
            explain_pod(history, POD)
        report = await replay(history, facts)
        found = verify(history, odd_log.builder.signer.public, ())

    assert (report.mismatches, report.decisions) == (0, 8)
    assert found.flaw is None


async def test_an_archive_holds_them_byte_for_byte(odd_log: RecordedLog, tmp_path: Path) -> None:
    await written_archive(odd_log, tmp_path / "a")
    async with odd_log.reading() as (history, _):
        report = verify_archive(Archive.of(tmp_path / "a"), odd_log.builder.signer.public, history)

    assert (report.flaw, report.entries) == (None, 9 + len(DISAGREEING))


async def test_decisions_about_rows_that_do_not_exist_are_listed_and_not_reproduced(
    small_log: RecordedLog,
) -> None:
    """They agree with themselves: what is wrong with them, a replay finds."""
    await small_log.builder.write(odd_messages(WILD), entry_of)

    async with small_log.reading() as (history, facts):
        unread = [entry for entry in history.entries(10) if read(entry) is None]
        assert explain_pod(history, POD).candidates == 2
        report = await replay(history, facts)

    assert unread == []
    assert report.mismatches == len(WILD)
