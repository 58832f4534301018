"""Until which moment the content of a follower is complete.

The content is complete until a moment if it includes everything that was stored before it. The age
of this moment is how far the content is behind: it stays small on an idle cluster, and grows while
something that is stored is not included.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

MOST_MARKS = 512  # beyond, every second one is dropped: the age is then less exact, never too small
TRANSIT_S = 300.0
NEVER_MS = 10**12  # the age of content that is not known to be complete until any moment
End = TypeVar("End")


class ViewAges(NamedTuple):
    """The two ages of a view. Rules about stale data use the older one."""

    heard_ms: int  # since the projector sent its last message
    behind_ms: int  # since the moment until which the view includes everything in the streams

    @property
    def oldest_ms(self) -> int:
        return max(self)


class Completeness(Generic[End]):
    """Marks state that content which reached an end is complete until a moment, in seconds.

    Ends and moments grow from mark to mark.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[End, float]] = deque()
        self.until = -math.inf

    def mark(self, end: End, moment: float) -> None:
        self._marks.append((end, moment))
        if len(self._marks) > MOST_MARKS:
            self._marks = deque(list(self._marks)[::-2][::-1])  # the newest mark stays

    def raise_to(self, moment: float) -> None:
        """The present content is complete until this moment."""
        self.until = max(self.until, moment)

    def advance(self, is_reached: Callable[[End], bool]) -> None:
        """To be called after the content has changed."""
        while self._marks and is_reached(self._marks[0][0]):
            self.raise_to(self._marks.popleft()[1])

    def forget(self) -> None:
        """For content of another history: no mark holds for it."""
        self._marks.clear()
        self.until = -math.inf

    def age_ms(self, now: float) -> int:
        return milliseconds(now - self.until)


class PositionCompleteness(Completeness[int]):
    """Also remembers until when earlier positions were complete: answers may still rest on them."""

    def __init__(self) -> None:
        super().__init__()
        self._left: dict[int, float] = {}

    def leave(self, position: int) -> None:
        """To be called before the content moves on from a position."""
        self._left[position] = self.until
        if len(self._left) > MOST_MARKS:
            self._left.pop(next(iter(self._left)))

    def until_of(self, position: int) -> float:
        return self._left.get(position, -math.inf)

    def forget(self) -> None:
        super().forget()
        self._left.clear()


class TransitDelay:
    """How long messages of a sender were on the way, beyond the shortest way of the last minutes.

    A message that waited, because the reader had no CPU, reports an age that is no longer true. The
    clocks of sender and reader need not agree: only the difference between messages counts. Of a
    sender with the reader's own clock, the whole way counts: even its first message may have
    waited.
    """

    def __init__(self, own_clock: str = "") -> None:
        self._own_clock = own_clock
        self._clock = ""
        self._began = 0.0
        self._shortest = self._shortest_before = math.inf

    def of(self, clock: str, sent: float, received: float) -> float:
        """In seconds; `sent` is a time of that clock, `received` of the reader's own."""
        if clock == self._own_clock:
            return max(0.0, received - sent)
        if clock != self._clock:
            self._clock, self._began = clock, received
            self._shortest = self._shortest_before = math.inf
        if received - self._began >= TRANSIT_S:  # clocks drift: an old minimum means nothing
            self._began = received
            self._shortest_before, self._shortest = self._shortest, math.inf
        self._shortest = min(self._shortest, received - sent)
        return received - sent - min(self._shortest, self._shortest_before)


def milliseconds(seconds: float) -> int:
    return int(min(max(0.0, seconds) * 1000, NEVER_MS))


def known_ms(age_ms: int) -> int | None:
    """None for an age that is not known."""
    return None if age_ms >= NEVER_MS else age_ms


def known_s(age_ms: int) -> float | None:
    """In seconds; None for an age that is not known."""
    return None if age_ms >= NEVER_MS else age_ms / 1000
