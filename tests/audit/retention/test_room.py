"""A stream that runs out of room is trimmed before it is as old as archived data may become."""

import pytest

from joulie_audit.retention.room import LEAST_S, SHORT, Keep, is_short, keep_in_room
from joulie_bus.streams.records import StreamSize
from joulie_bus.streams.subjects import Stream

HOUR_NS = 3_600 * 10**9
WEEK_S = 7 * 86_400.0


def held(share: float, hours: float, stream: Stream = Stream.DEC, **changed: object) -> StreamSize:
    """A stream of 1000 bytes that is full by this share, and holds messages of so many hours."""
    last = int(hours * HOUR_NS)
    size = StreamSize(stream, int(1000 * share), 1000, stream is Stream.TEL, 1, 0, last)
    return size._replace(**changed)  # type: ignore[arg-type]


def test_a_stream_with_room_keeps_what_was_asked() -> None:
    assert keep_in_room([held(SHORT, 100), held(0.1, 100)], WEEK_S) == Keep(WEEK_S)


def test_a_stream_that_is_short_keeps_half_of_its_room() -> None:
    found = keep_in_room([held(0.8, 40), held(0.9, 90, Stream.OBS)], WEEK_S)

    assert found.seconds == pytest.approx(40 * 3600 * 0.5 / 0.8)
    assert found.short is Stream.DEC


def test_an_hour_stays_in_any_case_unless_less_was_asked_for() -> None:
    assert keep_in_room([held(1.0, 0.5)], WEEK_S).seconds == LEAST_S
    assert keep_in_room([held(1.0, 0.5)], 60.0) == Keep(60.0)


@pytest.mark.parametrize("size", [held(0.99, 9, Stream.TEL), held(0.99, 9, max_bytes=0)])
def test_a_stream_that_refuses_nothing_is_never_short(size: StreamSize) -> None:
    assert not is_short(size)
    assert keep_in_room([size], WEEK_S) == Keep(WEEK_S)
