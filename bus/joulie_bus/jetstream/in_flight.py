"""Which messages of a stream are sent again, and when. No I/O, no clock.

The broker acknowledges messages of a stream in the order in which they were sent. While it is slow,
a message without an acknowledgement is therefore on its way, and a second copy only adds to the
work of the broker. A message is lost if its connection was, if the broker refused it for the
moment, or if a message that was sent after it was acknowledged before it.

If nothing is acknowledged for a while, the oldest message is sent again, after longer and longer
pauses. Lost messages are sent again as fast as the broker acknowledges them: first one, and two
for each that is acknowledged. Meanwhile no other message of the stream is sent.
"""

from collections.abc import Callable

from joulie_bus.core.backoff import Backoff
from joulie_bus.streams.records import Message

ACK_DEADLINE_S = 2.0  # an fsync of a slow disk takes 0.1 s, an election up to 5 s
LONGEST_PAUSE_S = 8.0  # between attempts: the delay after a failure has ended


class Flight:
    """A message that is not acknowledged yet. `settle` is called with what became of it."""

    __slots__ = ("copies", "is_again", "message", "settle", "unanswered")

    def __init__(self, message: Message, settle: Callable[[Exception | None], None]) -> None:
        self.message = message
        self.settle = settle
        self.copies: list[int] = []  # the number of each time that it was sent
        self.is_again = False  # its last copy is one that was sent again
        self.unanswered = False  # the broker reported no responders


class InFlight:
    """The messages of one stream. Times are those of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._by_copy: dict[int, Flight] = {}
        self._waiting: dict[int, Flight] = {}  # by their last copy, in the order of sending
        self._lost: dict[int, Flight] = {}  # by their first copy
        self._again = 0  # of those that wait: sent again
        self._at_once = 1  # how many may be sent again before the first of them is acknowledged
        self._pause = Backoff(ACK_DEADLINE_S, LONGEST_PAUSE_S)
        self._silent_at = 0.0  # without an acknowledgement until then, the oldest is sent again
        self._resumes_at = 0.0  # lost messages wait until then
        self._since = 0.0  # the last acknowledgement, or the begin of the wait for it

    def __len__(self) -> int:
        return len(self._waiting) + len(self._lost)

    @property
    def is_recovering(self) -> bool:
        """Whether something was lost or sent again, and the broker has not acknowledged it."""
        return bool(self._lost or self._again)

    def unanswered_s(self, now: float) -> float:
        """How long nothing has been acknowledged while something waited for it."""
        return now - self._since if len(self) else 0.0

    def flights(self) -> list[Flight]:
        return [*self._lost.values(), *self._waiting.values()]

    def of(self, copy: int) -> Flight | None:
        return self._by_copy.get(copy)

    def sent(self, flight: Flight, copy: int, now: float) -> None:
        """`copy` is a number that no message was sent with before."""
        if not len(self):
            self._expects_answers(now)
        self._wait_for(flight, copy)

    def acknowledged(self, copy: int, now: float) -> Flight | None:
        """None if another copy of the message was acknowledged before."""
        flight = self._by_copy.get(copy)
        if flight is None:
            return None
        if flight.is_again and copy == flight.copies[-1]:
            self._at_once += 1
        self._expects_answers(now)
        self.leave(flight)
        while self._waiting and (first := next(iter(self._waiting))) < copy:
            self._lose(self._waiting[first])
        if not self.is_recovering:
            self._at_once = 1
        return flight

    def refused_for_now(self, copy: int, now: float) -> Flight | None:
        flight = self._by_copy.get(copy)
        if flight is None or copy != flight.copies[-1]:
            return flight
        if now >= self._resumes_at:
            self._resumes_at = now + self._pause.failed()
            self._silent_at = self._resumes_at + ACK_DEADLINE_S
        self._at_once = 1
        self._lose(flight)
        return flight

    def connection_lost(self, now: float) -> None:
        """The next connection can store at once what this one did not."""
        if not len(self):
            return
        for flight in list(self._waiting.values()):
            self._lose(flight)
        self._at_once, self._resumes_at = 1, now
        self._expects_answers(now)

    def leave(self, flight: Flight) -> None:
        for copy in flight.copies:
            del self._by_copy[copy]
        self._lost.pop(flight.copies[0], None)
        if self._waiting.pop(flight.copies[-1], None) is not None:
            self._again -= flight.is_again

    def is_lost(self, flight: Flight) -> bool:
        return flight.copies[0] in self._lost

    def due(self, now: float) -> list[Flight]:
        """Lost messages to send again now: the caller sends each of them, or lets it `leave`."""
        if len(self) and now >= self._silent_at:
            self._at_once = 1
            for flight in [each for each in self._waiting.values() if each.is_again]:
                self._lose(flight)
            if not self._lost:
                self._lose(next(iter(self._waiting.values())))
            self._resumes_at = now
            self._silent_at = now + self._pause.failed()
        if now < self._resumes_at:
            return []
        room = max(0, self._at_once - self._again)
        return [self._lost[first] for first in sorted(self._lost)[:room]]

    def sent_again(self, flight: Flight, copy: int) -> None:
        del self._lost[flight.copies[0]]
        flight.is_again, flight.unanswered = True, False
        self._wait_for(flight, copy)
        self._again += 1

    def _wait_for(self, flight: Flight, copy: int) -> None:
        flight.copies.append(copy)
        self._by_copy[copy] = self._waiting[copy] = flight

    def _lose(self, flight: Flight) -> None:
        del self._waiting[flight.copies[-1]]
        self._lost[flight.copies[0]] = flight
        self._again -= flight.is_again
        flight.is_again = False

    def _expects_answers(self, now: float) -> None:
        self._pause.succeeded()
        self._since = now
        self._silent_at = now + ACK_DEADLINE_S
