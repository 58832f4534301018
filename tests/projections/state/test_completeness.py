"""Until when content is complete, and how long a message was on the way."""

import math

from joulie_projections.state.completeness import (
    MOST_MARKS,
    NEVER_MS,
    TRANSIT_S,
    Completeness,
    TransitDelay,
)


def test_content_is_complete_until_the_newest_mark_that_it_reached() -> None:
    held = Completeness[int]()
    for position, moment in ((1, 10.0), (2, 20.0), (3, 30.0)):
        held.mark(position, moment)
    held.advance(lambda end: end <= 2)

    assert held.until == 20.0
    assert held.age_ms(now=21.5) == 1500


def test_content_that_reached_no_mark_has_no_known_age() -> None:
    assert Completeness[int]().age_ms(now=5.0) == NEVER_MS


def test_content_of_another_history_has_no_known_age() -> None:
    held = Completeness[int]()
    held.raise_to(5.0)
    held.mark(2, 6.0)
    held.forget()
    held.advance(lambda _: True)

    assert held.until == -math.inf


def test_of_too_many_marks_the_newest_stays_and_the_age_is_never_too_small() -> None:
    held = Completeness[int]()
    last = 5 * MOST_MARKS
    for position in range(1, last + 1):
        held.mark(position, float(position))
    held.advance(lambda end: end <= last // 2)

    assert last // 2 - 64 <= held.until <= last // 2
    held.advance(lambda end: end <= last)
    assert held.until == last


def test_a_message_that_waited_is_older_than_the_others() -> None:
    way = TransitDelay()

    assert way.of("a", sent=1000.0, received=5.0) == 0.0
    assert way.of("a", sent=1001.0, received=9.0) == 3.0
    assert way.of("a", sent=1002.0, received=7.0) == 0.0


def test_the_first_message_by_the_same_clock_may_have_waited() -> None:
    way = TransitDelay("mine")

    assert way.of("mine", sent=1000.0, received=1002.0) == 2.0
    assert way.of("mine", sent=1003.0, received=1003.5) == 0.5


def test_the_clock_of_another_sender_is_another_one() -> None:
    way = TransitDelay()
    way.of("a", sent=1000.0, received=5.0)

    assert way.of("b", sent=10.0, received=6.0) == 0.0


def test_clocks_that_drift_apart_make_no_delay() -> None:
    way = TransitDelay()
    delays = [way.of("a", sent=second, received=second * 1.0001) for second in range(10_000)]

    assert max(delays) <= 2 * TRANSIT_S * 0.0001 + 1e-6
