"""A projector is alive while its position moves or it has no events to fold."""

from bus_kit import VirtualClock
from joulie_projections.projector.liveness import START_S, Liveness


class Watched:
    """A projector with a timeout of 60 s and a virtual clock."""

    def __init__(self) -> None:
        self._clock = VirtualClock(0)
        self.liveness = Liveness(60, lambda: self._clock.now / 1e9)

    def beats(self, seconds: int, position: int, lag: int) -> None:
        for _ in range(seconds):
            self._clock.advance(1)
            self.liveness.observe(position, lag)

    def is_silent_for(self, seconds: float) -> None:
        self._clock.advance(seconds)

    @property
    def alive(self) -> str:
        return self.liveness.alive()


def test_an_idle_projector_is_alive() -> None:
    watched = Watched()
    watched.beats(3600, position=7, lag=0)

    assert (watched.alive, watched.liveness.ready()) == ("", "")


def test_a_projector_whose_position_moves_is_alive_at_any_lag() -> None:
    watched = Watched()
    for position in range(10):
        watched.beats(59, position, lag=1_000_000)

    assert watched.alive == ""


def test_a_projector_stuck_with_pending_events_is_not_alive_until_it_moves() -> None:
    watched = Watched()
    watched.beats(1, position=7, lag=0)
    watched.beats(62, position=7, lag=5)
    stuck = watched.alive
    watched.beats(1, position=8, lag=4)

    assert stuck == "at position 7 for 62 s, with events waiting"
    assert watched.alive == ""


def test_a_projector_that_reads_its_rows_is_alive_for_minutes() -> None:
    watched = Watched()
    watched.liveness.start_to_lead()
    watched.is_silent_for(START_S - 1)
    reads = watched.alive
    watched.is_silent_for(2)

    assert reads == ""
    assert watched.alive == f"no beat for {START_S + 1:.0f} s"

    watched.beats(1, position=7, lag=0)
    watched.is_silent_for(61)
    assert watched.alive == "no beat for 61 s"


def test_a_projector_without_beats_is_not_alive() -> None:
    watched = Watched()
    watched.beats(1, position=7, lag=0)
    watched.is_silent_for(61)

    assert watched.alive == "no beat for 61 s"


def test_a_projector_is_not_ready_before_it_leads_or_stands_by() -> None:
    watched = Watched()
    before = watched.liveness.ready()
    watched.liveness.mark_standby()

    assert (before, watched.liveness.ready()) == ("waiting for the database", "")


def test_a_projector_that_takes_over_is_not_ready_before_its_first_beat() -> None:
    watched = Watched()
    watched.liveness.mark_standby()
    watched.liveness.start_to_lead()
    before = watched.liveness.ready()
    watched.beats(1, position=7, lag=0)

    assert (before, watched.liveness.ready()) == ("waiting for the database and the broker", "")
