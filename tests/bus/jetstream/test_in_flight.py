from typing import NamedTuple

from joulie_bus.jetstream.in_flight import ACK_DEADLINE_S, LONGEST_PAUSE_S, Flight, InFlight
from joulie_bus.streams.records import Message

SOON, SILENT = 0.1, ACK_DEADLINE_S


class Sender:
    """Sends messages, each in a copy with the next number, and again what is due."""

    def __init__(self) -> None:
        self.in_flight = InFlight()
        self.copies = 0

    def sends(self, count: int, now: float) -> None:
        for _ in range(count):
            self.copies += 1
            message = Message("s", f"id-{self.copies}", b"")
            self.in_flight.sent(Flight(message, lambda _: None), self.copies, now)

    def sends_again(self, now: float) -> list[str]:
        """The ids of what is due, sent again."""
        due = self.in_flight.due(now)
        for flight in due:
            self.copies += 1
            self.in_flight.sent_again(flight, self.copies)
        return [flight.message.id for flight in due]


class Attempt(NamedTuple):
    at: float
    ids: list[str]


def attempts(sender: Sender, until: float) -> list[Attempt]:
    """What a look four times a second sends again."""
    looks = [Attempt(at / 4, sender.sends_again(at / 4)) for at in range(1, int(4 * until))]
    return [look for look in looks if look.ids]


def test_a_broker_that_is_slow_gets_nothing_twice_as_long_as_it_acknowledges() -> None:
    sender = Sender()
    sender.sends(200, now=0.0)
    again = []
    for number in range(1, 201):  # the last one after a hundred seconds
        sender.in_flight.acknowledged(number, now=number / 2)
        again += sender.sends_again(now=number / 2 + SOON)

    assert again == []
    assert len(sender.in_flight) == 0


def test_a_silent_broker_gets_one_message_again_after_longer_and_longer_pauses() -> None:
    sender = Sender()
    sender.sends(250, now=0.0)
    found = attempts(sender, until=60.0)

    assert {tuple(each.ids) for each in found} == {("id-1",)}
    assert [each.at for each in found] == [2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 40.0, 48.0, 56.0]
    assert found[-1].at - found[-2].at == LONGEST_PAUSE_S


def test_the_first_acknowledgement_of_a_message_sent_before_sends_no_other_again() -> None:
    sender = Sender()
    sender.sends(250, now=0.0)
    sender.sends_again(now=SILENT)
    sender.in_flight.acknowledged(1, now=SILENT + SOON)  # of its first copy: it was on its way

    assert sender.sends_again(now=SILENT + 2 * SOON) == []
    assert not sender.in_flight.is_recovering


def test_what_is_lost_is_sent_again_faster_and_faster_as_it_is_acknowledged() -> None:
    sender = Sender()
    sender.sends(20, now=0.0)
    rounds = [sender.sends_again(now=SILENT)]
    while rounds[-1]:
        first = sender.copies - len(rounds[-1]) + 1
        for copy in range(first, sender.copies + 1):
            sender.in_flight.acknowledged(copy, now=SILENT + SOON)
        rounds.append(sender.sends_again(now=SILENT + SOON))

    assert [len(each) for each in rounds] == [1, 2, 4, 8, 5, 0]
    assert [each for some in rounds for each in some] == [f"id-{at}" for at in range(1, 21)]
    assert len(sender.in_flight) == 0


def test_what_a_later_message_overtook_is_lost() -> None:
    sender = Sender()
    sender.sends(3, now=0.0)
    sender.in_flight.acknowledged(3, now=SOON)

    assert sender.in_flight.is_recovering
    assert sender.sends_again(now=2 * SOON) == ["id-1"]


def test_a_lost_connection_sends_the_oldest_again_at_once_on_the_next_one() -> None:
    sender = Sender()
    sender.sends(3, now=0.0)
    sender.in_flight.connection_lost(now=SOON)

    assert sender.sends_again(now=SOON) == ["id-1"]
    assert sender.sends_again(now=2 * SOON) == []
    sender.in_flight.acknowledged(4, now=3 * SOON)
    assert sender.sends_again(now=3 * SOON) == ["id-2", "id-3"]


def test_refusals_for_the_moment_of_many_messages_are_one_failure() -> None:
    sender = Sender()
    sender.sends(250, now=0.0)
    for number in range(1, 251):
        sender.in_flight.refused_for_now(number, now=SOON)

    assert sender.sends_again(now=SOON) == []
    assert sender.sends_again(now=SOON + ACK_DEADLINE_S) == ["id-1"]


def test_an_acknowledgement_of_any_copy_counts_once() -> None:
    sender = Sender()
    sender.sends(1, now=0.0)
    sender.sends_again(now=SILENT)

    assert sender.in_flight.acknowledged(1, now=SILENT) is not None
    assert sender.in_flight.acknowledged(2, now=SILENT) is None
    assert len(sender.in_flight) == 0
    assert sender.in_flight.unanswered_s(now=SILENT + 9) == 0.0


def test_it_is_known_how_long_the_broker_acknowledges_nothing() -> None:
    sender = Sender()
    sender.sends(2, now=1.0)
    assert sender.in_flight.unanswered_s(now=4.0) == 3.0
    sender.in_flight.acknowledged(1, now=4.0)
    assert sender.in_flight.unanswered_s(now=5.0) == 1.0
    sender.in_flight.connection_lost(now=6.0)
    assert sender.in_flight.unanswered_s(now=6.5) == 0.5
