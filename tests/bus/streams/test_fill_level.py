"""Days until a stream is full: by its growth in the last day, or by its age."""

import pytest

from joulie_bus.streams.fill_level import DAY_NS, Growth, days_left, kept_s, per_second
from joulie_bus.streams.records import StreamSize
from joulie_bus.streams.subjects import Stream

HOUR_NS = DAY_NS // 24


def size(held: int, age_ns: int = 0, first: int = 1, *, drops_old: bool = False) -> StreamSize:
    return StreamSize(Stream.OBS, held, 1000, drops_old, first, 0, age_ns)


def test_a_stream_that_was_never_trimmed_grows_by_its_bytes_over_its_age() -> None:
    held = size(500, age_ns=5 * DAY_NS)

    assert Growth().per_day(held, 0) == 100
    assert days_left(held, 100) == 5


@pytest.mark.parametrize(
    "held", [size(500, HOUR_NS // 2), size(500, 5 * DAY_NS, first=7)], ids=["young", "trimmed"]
)
def test_an_unknown_fill_level_is_not_reported(held: StreamSize) -> None:
    assert Growth().per_day(held, 0) is None
    assert days_left(held, None) is None


def test_the_growth_of_the_last_day_counts_once_there_is_an_earlier_look() -> None:
    growth, found = Growth(), list[float | None]()
    for hour in range(48):
        held = size(100 + (0 if hour < 24 else (hour - 24) * 10), 5 * DAY_NS, first=2)
        growth.observe(held, hour * HOUR_NS)
        found.append(growth.per_day(held, hour * HOUR_NS))

    assert found[0] is None
    assert found[12] == 0
    assert found[47] == pytest.approx(240, rel=0.05)


def test_a_stream_that_is_trimmed_as_fast_as_it_grows_is_never_full() -> None:
    growth = Growth()
    growth.observe(size(900, 30 * DAY_NS, first=50), 0)
    held = size(890, 30 * DAY_NS, first=90)

    assert days_left(held, growth.per_day(held, DAY_NS)) is None


def test_neither_a_stream_without_a_limit_nor_one_that_drops_what_is_old_is_ever_full() -> None:
    assert days_left(size(500, DAY_NS)._replace(max_bytes=0), 100) is None
    assert days_left(size(500, DAY_NS, drops_old=True), 100) is None


def test_a_stream_keeps_the_time_from_its_oldest_message_to_its_newest() -> None:
    held = size(500, 2 * HOUR_NS, first=1_001)._replace(last=145_001)

    assert kept_s(held) == 7200
    assert per_second(held) == 20
    assert per_second(size(0)) == 0


def test_a_stream_beyond_its_limit_has_no_day_left() -> None:
    assert days_left(size(1200), 100) == 0
