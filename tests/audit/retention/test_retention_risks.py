"""Warnings before unarchived data ages out of a stream."""

import pytest

from audit_kit import RecordedLog
from joulie_audit.retention.retention_risks import (
    RetentionRisk,
    oldest_unarchived,
    retention_risks,
    risk_of,
)
from joulie_bus.streams.records import StreamState
from joulie_bus.streams.subjects import Stream

pytestmark = pytest.mark.anyio
SECOND = 1_000_000_000


def tel(first: int, last: int) -> StreamState:
    return StreamState(Stream.TEL, "then", first, last)


@pytest.mark.parametrize(
    ("state", "needed", "is_lost"),
    [
        pytest.param(tel(1, 100), 1, None, id="the stream dropped nothing"),
        pytest.param(tel(101, 200), 126, None, id="a quarter is archived"),
        pytest.param(tel(101, 200), 125, False, id="less than a quarter is archived"),
        pytest.param(tel(101, 200), 101, False, id="the next message to drop is not archived"),
        pytest.param(tel(101, 200), 100, True, id="an unarchived message was dropped"),
    ],
)
async def test_a_stream_about_to_drop_unarchived_messages_is_a_risk(
    state: StreamState, needed: int, is_lost: bool | None
) -> None:
    expected = None if is_lost is None else RetentionRisk(Stream.TEL, needed, state.first, is_lost)

    assert risk_of(state, needed) == expected


async def test_the_oldest_unarchived_fact_is_the_first_one_after_the_archive(
    small_log: RecordedLog,
) -> None:
    end, now = small_log.builder.position, small_log.builder.clock()
    async with small_log.reading() as (history, _):
        ages = [oldest_unarchived(history, mark) for mark in (0, 12, 19, end)]

    assert ages == [now - 22 * SECOND, now - 20 * SECOND, now, None]


async def test_only_streams_that_dropped_messages_are_at_risk(small_log: RecordedLog) -> None:
    async with small_log.reading() as (history, _):
        before = await retention_risks(history, small_log.builder.bus, 0)
        small_log.builder.broker.trim(Stream.TEL, 4)
        after = await retention_risks(history, small_log.builder.bus, 0)
        archived = await retention_risks(history, small_log.builder.bus, small_log.builder.position)

    assert (before, archived) == ([], [])
    assert after == [RetentionRisk(Stream.TEL, 1, 5, is_lost=True)]
