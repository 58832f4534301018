"""Times of the command line: relative to now, or absolute."""

from datetime import UTC, datetime

from joulie_bus.errors import NotInTheLog
from joulie_bus.runtime.settings import duration

SECOND = 1_000_000_000  # ns
HOW = "a position, a time such as 2026-11-21T10:30, or -10m"


def as_time(text: str, now: int) -> int:
    """Nanoseconds since 1970; a time without a zone is UTC."""
    if text.startswith("-"):
        return now - int(duration(text[1:]) * SECOND)
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return int(time.timestamp() * SECOND)


def time_of(text: str, now: int, how: str = HOW) -> int:
    """As `as_time`; raises NotInTheLog, which says how times are written."""
    try:
        return as_time(text, now)
    except ValueError as error:
        raise NotInTheLog(f"{text!r} is not {how}.") from error


def time_of_period(text: str, now: int) -> int:
    """A period has no positions."""
    return time_of(text, now, "a time such as 2026-11-21T10:30, or -10m")


def instant(ns: int) -> datetime:
    return datetime.fromtimestamp(ns / SECOND, UTC)


def time_since(text: str, now: int) -> datetime:
    """Raises NotInTheLog."""
    at = time_of(text, now)
    if at > now:
        raise NotInTheLog(f"--since {text} lies in the future. Give a time in the past.")
    return instant(at)
