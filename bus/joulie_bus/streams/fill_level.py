"""How full a stream is, how fast it grows, and when it will refuse messages."""

from collections import deque
from typing import NamedTuple

from joulie_bus.streams.records import StreamSize

DAY_NS = 86_400 * 10**9
ENOUGH_NS = DAY_NS // 24  # a shorter time does not represent a day
REMEMBERED_NS = DAY_NS


class _Look(NamedTuple):
    at: int
    bytes: int


class Growth:
    """The growth of one stream between observations. Messages trimmed in between count too."""

    def __init__(self) -> None:
        self._looks: deque[_Look] = deque()

    def observe(self, size: StreamSize, now: int) -> None:
        while self._looks and now - self._looks[0].at > REMEMBERED_NS:
            self._looks.popleft()
        if not self._looks or now - self._looks[-1].at >= ENOUGH_NS:
            self._looks.append(_Look(now, size.bytes))

    def per_day(self, size: StreamSize, now: int) -> float | None:
        """Bytes per day; None if unknown. Until observations are far enough apart, the age of the
        stream counts, if it still holds its first message.
        """
        if self._looks and now - self._looks[0].at >= ENOUGH_NS:
            first = self._looks[0]
            return (size.bytes - first.bytes) * DAY_NS / (now - first.at)
        age = size.last_at - size.first_at
        if size.first > 1 or age < ENOUGH_NS:
            return None
        return size.bytes * DAY_NS / age


def kept_s(size: StreamSize) -> float:
    """From the oldest message that is kept to the newest."""
    return max(0, size.last_at - size.first_at) / 1e9


def per_second(size: StreamSize) -> float:
    """The mean rate of the messages that are kept."""
    return (size.last - size.first) / kept if (kept := kept_s(size)) else 0.0


def days_left(size: StreamSize, per_day: float | None) -> float | None:
    """Days until messages are refused; None if that is unknown or never."""
    if size.drops_old or not size.max_bytes or per_day is None or per_day <= 0:
        return None
    return max(0, size.max_bytes - size.bytes) / per_day
