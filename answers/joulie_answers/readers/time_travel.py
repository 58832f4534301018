"""Time travel: the state at any position, folded again from the facts.

The audit package finds the snapshot, folds, and reads the facts. This module adds what a server
needs: it does not block the event loop, and it bounds the time and memory of a query.
"""

import asyncio
from typing import NamedTuple

from joulie_answers.readers.history import HistoryReader
from joulie_answers.views.cluster_view import ClusterSnapshot
from joulie_audit.archive.fact_source import StreamFacts, streams_of
from joulie_audit.recompute.fold import FoldedState
from joulie_audit.replay.fold_start import start_before
from joulie_bus.errors import NotInTheLog, StreamGap, StreamReplaced, TooFarBack
from joulie_bus.log.protocol import Log
from joulie_projections.fold.commit import Inputs
from joulie_projections.history.history import History

CACHE_SIZE = 4  # snapshots: the page queries the same one several times
MAX_FACTS = 500_000  # facts folded for one query: about ten seconds of one core
TIMEOUT_S = 30.0  # for one query, including the wait for other queries


class TimeTravel:
    """Folds for one query at a time, because folding is expensive."""

    def __init__(self, bus: Log, history: HistoryReader) -> None:
        self._bus = bus
        self._history = history
        self._cache: dict[int, ClusterSnapshot] = {}
        self._lock = asyncio.Lock()

    async def snapshot_at(self, position: int) -> ClusterSnapshot:
        """Raises TooFarBack if facts are missing or too many, or after a timeout."""
        try:
            async with asyncio.timeout(TIMEOUT_S), self._lock:
                if position not in self._cache:
                    self._cache[position] = await self._fold_to(position)
                while len(self._cache) > CACHE_SIZE:
                    self._cache.pop(next(iter(self._cache)))
                return self._cache[position]
        except TimeoutError as error:
            why = f"folding, and the wait for other queries, took longer than {TIMEOUT_S:.0f} s."
            raise TooFarBack(position, why) from error

    async def _fold_to(self, position: int) -> ClusterSnapshot:
        start = await self._history.run(lambda history: _fold_start(history, position))
        folding = start.folding
        if (distance := position - folding.position) > MAX_FACTS:
            raise TooFarBack(position, _too_long(distance, position))
        async with StreamFacts.over(self._bus, start.streams) as facts:
            while folding.position < position:
                await self._fold_next(folding, facts, position)
        twin_columns = await asyncio.to_thread(folding.twin_columns)
        return ClusterSnapshot(position, start.committed_at, folding.cluster_state, twin_columns)

    async def _fold_next(self, folding: FoldedState, facts: StreamFacts, position: int) -> None:
        manifests = await self._history.manifests_to(folding.position, position)
        if not manifests:
            raise TooFarBack(position, "no batch of that time is in the database.")
        for manifest in manifests:
            try:
                records = await facts.of(manifest)
            except (NotInTheLog, StreamReplaced) as error:
                raise TooFarBack(position, _missing(error, position)) from error
            needed = records[: position - manifest.p_from + 1]
            await asyncio.to_thread(folding.skip, needed)


class _FoldStart(NamedTuple):
    folding: FoldedState
    streams: Inputs
    committed_at: int  # of the requested position


def _fold_start(history: History, position: int) -> _FoldStart:
    committed_at = history.committed_at(position) if position else None
    return _FoldStart(start_before(history, position), streams_of(history), committed_at or 0)


def _too_long(distance: int, position: int) -> str:
    return (
        f"{distance} facts lie between it and the nearest snapshot, and at most {MAX_FACTS} "
        f"are folded for one query; `joulie twin NODE --at {position}` has no such limit."
    )


def _missing(error: Exception, position: int) -> str:
    if not isinstance(error.__cause__, StreamGap):
        return str(error)
    return (
        "facts since the nearest snapshot have aged out of the streams; "
        f"`joulie twin NODE --at {position} --archive DIR` reads them from an archive."
    )
