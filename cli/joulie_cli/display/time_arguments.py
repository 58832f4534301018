"""Time arguments of commands: a position, an ISO time, or a relative time such as -10m."""

from datetime import UTC, datetime

from joulie_audit.chain.log_start import trimmed_hint
from joulie_bus.errors import NotInTheLog
from joulie_cli.display.times import SECOND, time_of
from joulie_projections.history.history import History


def time_of_period(text: str, now: int) -> int:
    """A period has no positions."""
    return time_of(text, now, "a time such as 2026-11-21T10:30, or -10m")


def shown(at: int) -> str:
    return f"{datetime.fromtimestamp(at / SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC"


def position_at(text: str, history: History, newest: int, now: int) -> int:
    """The position that was current at that time. `newest` is the last position of the log."""
    if text.isascii() and text.isdigit():
        position = int(text)
        if not 1 <= position <= newest:
            raise NotInTheLog(f"There is no position {position}: the log has 1 to {newest}.")
        return position
    at = time_of(text, now)
    spans = history.commit_time_range()
    assert spans is not None  # there is a newest position
    first, last = spans
    if at > now:
        raise NotInTheLog(
            f"{shown(at)} is in the future. The newest commit, position {newest}, is of "
            f"{shown(last)}."
        )
    if at < first and (cut := history.cut()) is not None:
        raise NotInTheLog(f"The state at {shown(at)} is not stored: {trimmed_hint(cut)}")
    if at < first:
        raise NotInTheLog(
            f"There is no state at {shown(at)}: the log begins with position 1 at {shown(first)}."
        )
    return history.position_by(at)
