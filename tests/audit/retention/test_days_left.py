"""Nothing ages out unarchived silently."""

import pytest

from joulie_audit.retention.days_left import Danger, danger_of, dangers, oldest_unarchived
from joulie_audit.testing import Past
from joulie_bus.streams.records import StreamState
from joulie_bus.streams.subjects import Stream

pytestmark = pytest.mark.anyio
SECOND = 1_000_000_000


def tel(first: int, last: int) -> StreamState:
    return StreamState(Stream.TEL, "then", first, last)


@pytest.mark.parametrize(
    ("state", "needed", "is_lost"),
    [
        pytest.param(tel(1, 100), 1, None, id="nothing was dropped yet"),
        pytest.param(tel(101, 200), 126, None, id="a quarter of it is archived"),
        pytest.param(tel(101, 200), 125, False, id="less than that"),
        pytest.param(tel(101, 200), 101, False, id="the next to go is needed"),
        pytest.param(tel(101, 200), 100, True, id="what was needed is gone"),
    ],
)
async def test_a_stream_that_drops_what_is_needed_next_is_told(
    state: StreamState, needed: int, is_lost: bool | None
) -> None:
    expected = None if is_lost is None else Danger(Stream.TEL, needed, state.first, is_lost)

    assert danger_of(state, needed) == expected


async def test_the_oldest_unarchived_fact_is_the_first_behind_the_mark(small: Past) -> None:
    end, now = small.maker.position, small.maker.clock()
    async with small.reading() as (history, _):
        ages = [oldest_unarchived(history, mark) for mark in (0, 12, 19, end)]

    assert ages == [now - 22 * SECOND, now - 20 * SECOND, now, None]


async def test_only_streams_that_have_begun_to_drop_are_in_danger(small: Past) -> None:
    async with small.reading() as (history, _):
        before = await dangers(history, small.maker.bus, 0)
        small.maker.broker.trim(Stream.TEL, 4)
        after = await dangers(history, small.maker.bus, 0)
        archived = await dangers(history, small.maker.bus, small.maker.position)

    assert (before, archived) == ([], [])
    assert after == [Danger(Stream.TEL, 1, 5, is_lost=True)]
