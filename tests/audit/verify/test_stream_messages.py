"""Messages of the stream of decisions against the entries, within what the heads sign."""

from collections.abc import Iterator, Mapping, Sequence

import pytest

from audit_kit import RecordedLog
from bus_kit import ask
from joulie_audit.chain.entries import Flaw
from joulie_audit.verify.stream_messages import Compared, compare_messages, unlogged_notes
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain import log_end
from joulie_projections.chain.entry import Entry
from joulie_projections.chain.log_end import End, Step
from joulie_projections.chain.sequence_gaps import Gap
from joulie_projections.chain.unreadable import TakenMessage
from joulie_projections.fold.commit import Input
from planted_rows import forged

pytestmark = pytest.mark.anyio


async def compared(recorded: RecordedLog) -> Compared:
    builder = recorded.builder
    async with recorded.reading() as (history, _):
        return await compare_messages(builder.bus, history, builder.signer.public, ())


async def test_a_log_has_an_entry_of_each_message_and_no_other(small_log: RecordedLog) -> None:
    assert await compared(small_log) == Compared()


async def test_a_message_that_a_head_signs_and_that_has_no_entry_is_a_flaw(
    small_log: RecordedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a projector with a fault writes the log."""
    taken = log_end._without_repeats

    def without_the_first(
        messages: Sequence[TakenMessage], known: Mapping[str, bytes]
    ) -> Iterator[TakenMessage]:
        return iter(list(taken(messages, known))[1:])

    monkeypatch.setattr(log_end, "_without_repeats", without_the_first)
    await small_log.builder.answer(ask("late-3"))
    small_log.builder.sign()

    found = await compared(small_log)
    assert found.flaw == Flaw(
        0,
        "message 10 of JOULIE_DEC, extender-0:b1:10, has no entry, and the head at entry 10 signs "
        "it as read",
    )


async def test_an_entry_that_is_of_no_message_that_a_head_signs_is_a_flaw(
    small_log: RecordedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    chained = log_end.chained

    def with_another(end: End, entries: Sequence[Entry], read: Input) -> Step:
        return chained(end, [*entries, forged("made-up", "extender:other:1")], read)

    monkeypatch.setattr(log_end, "chained", with_another)
    await small_log.builder.answer(ask("late-3"))
    small_log.builder.sign()

    found = await compared(small_log)
    assert found.flaw == Flaw(
        12,
        "entry 12, extender:other:1, is of no message of JOULIE_DEC that the head at entry 12 "
        "signs as read",
    )


async def test_a_stream_with_other_messages_proves_nothing(small_log: RecordedLog) -> None:
    records = small_log.builder.broker.stream(Stream.DEC).records
    records[4] = records[4]._replace(data=records[3].data)

    found = await compared(small_log)
    assert found.flaw is None
    assert found.notes == [
        "messages 1 to 7 of JOULIE_DEC are not those that the head at entry 7 signs as read: the "
        "stream proves nothing there"
    ]


async def test_a_message_behind_the_newest_head_is_no_flaw(small_log: RecordedLog) -> None:
    await small_log.builder.answer(ask("late-3"))

    assert await compared(small_log) == Compared()


def test_a_gap_that_the_stream_still_holds_is_noted() -> None:
    gap = Gap("extender-0:b1", 10, 11)

    assert unlogged_notes([gap], {"extender-0:b1:12": 90}) == []
    assert unlogged_notes([gap], {"extender-0:b1:11": 91}) == [
        "extender-0:b1:11 is #91 of JOULIE_DEC and not in the log, and no head signs it as read"
    ]
