"""Back in time: the world as it was believed at any position, folded again from the facts.

Where it starts, how it folds and where the facts come from is audit's. This adds what a server
needs: the event loop is never held up, and neither time nor memory is anybody's for the asking.
"""

import asyncio
from typing import NamedTuple

from joulie_audit.archive.fact_source import StreamFacts, streams_of
from joulie_audit.replay.fold import FoldedState
from joulie_audit.replay.fold_start import start_before
from joulie_bus.errors import NotInTheLog, StreamGap, StreamReplaced, TooFarBack
from joulie_bus.streams.log import Log
from joulie_console.views.cluster_view import Moment
from joulie_console.views.past import Past
from joulie_projections.fold.commit import Inputs
from joulie_projections.history.history import History

CACHED = 4  # moments; people look at one, and at it again
FARTHEST = 500_000  # facts folded for one question: some ten seconds of one core
LONGEST_S = 30.0  # from the question to the answer, waiting for others included


class Travel:
    """One journey at a time: they are heavy, and who drags a slider wants only the last."""

    def __init__(self, bus: Log, past: Past) -> None:
        self._bus = bus
        self._past = past
        self._seen: dict[int, Moment] = {}
        self._alone = asyncio.Lock()

    async def to(self, position: int) -> Moment:
        """Raises TooFarBack where facts are missing, or there are too many of them."""
        try:
            async with asyncio.timeout(LONGEST_S), self._alone:
                if position not in self._seen:
                    self._seen[position] = await self._go(position)
                while len(self._seen) > CACHED:
                    self._seen.pop(next(iter(self._seen)))
                return self._seen[position]
        except TimeoutError as error:
            why = f"the way there, and the wait for others, took longer than {LONGEST_S:.0f} s."
            raise TooFarBack(position, why) from error

    async def _go(self, position: int) -> Moment:
        start = await self._past.ask(lambda history: _departure(history, position))
        folding = start.folding
        if (distance := position - folding.position) > FARTHEST:
            raise TooFarBack(position, _too_long(distance, position))
        async with StreamFacts.over(self._bus, start.streams) as facts:
            while folding.position < position:
                await self._go_on(folding, facts, position)
        twin_columns = await asyncio.to_thread(folding.twin_columns)
        return Moment(position, start.committed_at, 0, folding.cluster_state, twin_columns)

    async def _go_on(self, folding: FoldedState, facts: StreamFacts, position: int) -> None:
        manifests = await self._past.manifests_to(folding.position, position)
        if not manifests:
            raise TooFarBack(position, "no batch of that time is in the database.")
        for manifest in manifests:
            try:
                records = await facts.of(manifest)
            except (NotInTheLog, StreamReplaced) as error:
                raise TooFarBack(position, _missing(error, position)) from error
            wanted = records[: position - manifest.p_from + 1]
            await asyncio.to_thread(folding.skip, wanted)


class _Departure(NamedTuple):
    folding: FoldedState
    streams: Inputs
    committed_at: int  # of the goal


def _departure(history: History, position: int) -> _Departure:
    committed_at = history.committed_at(position) if position else None
    return _Departure(start_before(history, position), streams_of(history), committed_at or 0)


def _too_long(distance: int, position: int) -> str:
    return (
        f"{distance} facts lie between it and the nearest snapshot, and no more than {FARTHEST} "
        f"are folded for one question; `joulie twin NODE --at {position}` takes its time."
    )


def _missing(error: Exception, position: int) -> str:
    if not isinstance(error.__cause__, StreamGap):
        return str(error)
    return (
        "facts since the nearest snapshot have aged out of the streams; "
        f"`joulie twin NODE --at {position} --archive DIR` finds those that were archived."
    )
