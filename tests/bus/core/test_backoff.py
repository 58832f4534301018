from joulie_bus.core.backoff import Backoff


def test_each_failure_doubles_the_pause_up_to_the_limit() -> None:
    backoff = Backoff(0.5, 3.0)

    assert [backoff.failed() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_success_starts_again() -> None:
    backoff = Backoff(1.0, 30.0)
    backoff.failed()
    backoff.failed()

    backoff.succeeded()

    assert backoff.failed() == 1.0


def test_a_failure_that_lasts_for_years_waits_no_longer() -> None:
    assert Backoff(0.2, 10.0).after(10**9) == 10.0
