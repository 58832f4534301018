"""What would be lost first: how old the oldest fact is that no archive holds, and how near its end.

Streams that drop old messages do so whether these were archived or not.
"""

from typing import NamedTuple, Protocol

from joulie_bus.streams.records import StreamState
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.history.history import History

RISK_MARGIN = 0.25  # of what a stream holds; an archive that goes well stays far above it


class Streams(Protocol):
    async def state(self, stream: Stream) -> StreamState: ...


class RetentionRisk(NamedTuple):
    """A stream has begun to drop, and what comes next is needed."""

    stream: Stream
    needed: int  # the first message that no archive holds
    first: int  # the first one that is still there
    is_lost: bool


def oldest_unarchived(history: History, archived_to: int) -> int | None:
    """When the first position that no archive holds was committed; None if there is none."""
    newest = history.checkpoint()
    if newest is None or newest.position <= archived_to:
        return None
    return history.committed_at(archived_to + 1)


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
    """A stream that still holds its first message has dropped nothing yet."""
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
