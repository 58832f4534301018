"""The broker's clock in a component whose own wall clock may be wrong."""

from joulie_projections.state.broker_clock import NOTES, BrokerClock

NS = 10**9
NOON = 1_700_000_000 * NS


def test_before_the_first_note_the_own_clock_counts() -> None:
    assert BrokerClock().at(7.0, 5) == 5


def test_the_time_continues_from_a_note() -> None:
    clock = BrokerClock()
    clock.note(NOON, 100.0)

    assert clock.at(102.5, 0) == NOON + int(2.5 * NS)


def test_a_note_that_was_on_its_way_for_long_changes_nothing() -> None:
    clock = BrokerClock()
    clock.note(NOON, 100.0)
    clock.note(NOON + 1 * NS, 104.0)  # three seconds late

    assert clock.at(104.0, 0) == NOON + 4 * NS


def test_noise_of_milliseconds_does_not_move_the_clock() -> None:
    clock = BrokerClock()
    for number in range(100):
        clock.note(NOON + number * NS // 4 - (number % 5) * 1_000_000, 100.0 + number / 4)

    assert abs(clock.at(125.0, 0) - (NOON + 25 * NS)) < 20_000_000


def test_a_clock_of_the_broker_that_is_set_is_followed_either_way() -> None:
    for step_s in (-5, 5):
        clock = BrokerClock()
        clock.note(NOON, 100.0)
        for number in range(NOTES + 1):
            clock.note(NOON + (number + step_s) * NS, 100.0 + number)

        assert clock.at(100.0 + NOTES, 0) == NOON + (NOTES + step_s) * NS
