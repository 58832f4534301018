"""Warns before data is lost: the age of the oldest unarchived fact, and streams about to drop it.

Streams drop old messages whether they were archived or not.
"""

from typing import NamedTuple, Protocol

from joulie_bus.streams.records import StreamState
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.history.history import History

RISK_MARGIN = 0.25  # share of a stream; an archive that keeps up stays far above it


class Streams(Protocol):
    async def state(self, stream: Stream) -> StreamState: ...


class RetentionRisk(NamedTuple):
    """A stream drops messages, and the next ones to go are not archived."""

    stream: Stream
    needed: int  # the first message that is not archived
    first: int  # the first message that the stream still holds
    is_lost: bool


def oldest_unarchived(history: History, archived_to: int) -> int | None:
    """The commit time of the first unarchived position; None if everything is archived."""
    newest = history.checkpoint()
    if newest is None or newest.position <= archived_to:
        return None
    return history.committed_at(archived_to + 1)


def trim_due_s(history: History, keep_s: float, now: int) -> float:
    """How long the oldest snapshot behind the cut lies before the keep window: a cut can be there.

    0 if there is none. Between two snapshots nothing is due: a quiet cluster makes few of them.
    """
    cut = history.cut()
    behind = [start for start in history.starts() if cut is None or start > cut.p_to]
    made_at = history.committed_at(min(behind)) if behind else None
    return 0.0 if made_at is None else max(0.0, (now - made_at) / 1e9 - keep_s)


async def retention_risks(
    history: History, streams: Streams, archived_to: int
) -> list[RetentionRisk]:
    found: list[RetentionRisk] = []
    for stream in MERGE_ORDER:
        needed = _first_needed(history, stream, archived_to)
        if needed is not None:
            risk = risk_of(await streams.state(stream), needed)
            found += [risk] if risk else []
    return found


def risk_of(state: StreamState, needed: int) -> RetentionRisk | None:
    """None while the stream still holds its first message, or enough archived ones."""
    margin, held = needed - state.first, state.last - state.first + 1
    if state.first <= 1 or margin >= held * RISK_MARGIN:
        return None
    return RetentionRisk(state.stream, needed, state.first, is_lost=margin < 0)


def _first_needed(history: History, stream: Stream, archived_to: int) -> int | None:
    for manifest in history.manifests(archived_to + 1):
        for part in manifest.ranges:
            if part.stream is stream:
                return part.first
    return None
