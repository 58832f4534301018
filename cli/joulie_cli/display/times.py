"""Times of the command line: relative to now, or absolute."""

import argparse
from datetime import UTC, datetime
from typing import NamedTuple

from joulie_bus.errors import NotInTheLog
from joulie_bus.runtime.settings import duration

SECOND = 1_000_000_000  # ns
IN_THE_PAST = "Nothing was read. Give a time in the past."
EARLIER = "Nothing was read. Give an earlier --from, or a later --to."
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
        raise NotInTheLog(f"{text!r} is not {how}. Nothing was done.") from error


def time_of_period(text: str, now: int) -> int:
    """A period has no positions."""
    return time_of(text, now, "a time such as 2026-11-21T10:30, or -10m")


class Period(NamedTuple):
    """Nanoseconds since 1970."""

    first: int
    last: int


def period_of(args: argparse.Namespace, now: int) -> Period:
    """`--from` and `--to`, by default all until now. Raises NotInTheLog."""
    first = time_of_period(args.first, now) if args.first else 0
    last = time_of_period(args.last, now) if args.last else now
    if first > now:
        raise NotInTheLog(f"--from {args.first} lies in the future. {EARLIER}")
    if first >= last:
        until = f"--to {args.last}" if args.last else "now"
        raise NotInTheLog(f"--from {args.first} is not before {until}. {EARLIER}")
    return Period(first, last)


def instant(ns: int) -> datetime:
    return datetime.fromtimestamp(ns / SECOND, UTC)


def time_since(text: str, now: int) -> datetime:
    """Raises NotInTheLog."""
    at = time_of(text, now)
    if at > now:
        raise NotInTheLog(f"--since {text} lies in the future. {IN_THE_PAST}")
    return instant(at)
