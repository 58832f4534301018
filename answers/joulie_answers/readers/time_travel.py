"""Time travel: the state at any position, folded again from the facts.

The audit package finds the snapshot, folds, and reads the facts. This module adds what a server
needs: it does not block the event loop, and it bounds the time and memory of a query.
"""

import asyncio
from typing import NamedTuple

from joulie_answers.readers.facts import OpenFacts
from joulie_answers.readers.history import HistoryReader
from joulie_answers.views.cluster_view import ClusterSnapshot
from joulie_audit.archive.fact_source import FactSource
from joulie_audit.recompute.fold import FoldedState
from joulie_audit.replay.fold_start import start_before
from joulie_bus.errors import NotInTheLog, StreamGap, StreamReplaced, TooFarBack
from joulie_projections.history.history import History

CACHE_SIZE = 4  # snapshots: the page queries the same one several times
MAX_FACTS = 500_000  # facts folded for one query: about ten seconds of one core
MAX_PLAN_EVENTS = 200_000
TIMEOUT_S = 30.0  # for one query, including the wait for other queries


class Bounds(NamedTuple):
    """Of one query. A command of one user has none."""

    facts: int = MAX_FACTS
    plans: int = MAX_PLAN_EVENTS  # events of plans that are searched for one of them
    timeout_s: float | None = TIMEOUT_S


SERVED, UNBOUNDED = Bounds(), Bounds(2**63, 2**63, None)


class TimeTravel:
    """Folds for one query at a time, because folding is expensive."""

    def __init__(
        self, open_facts: OpenFacts, history: HistoryReader, bounds: Bounds = SERVED
    ) -> None:
        self._open_facts = open_facts
        self._history = history
        self._bounds = bounds
        self._cache: dict[int, ClusterSnapshot] = {}
        self._lock = asyncio.Lock()

    async def snapshot_at(self, position: int) -> ClusterSnapshot:
        """Raises TooFarBack if facts are missing or too many, or after a timeout."""
        try:
            async with asyncio.timeout(self._bounds.timeout_s), self._lock:
                if position not in self._cache:
                    self._cache[position] = await self._fold_to(position)
                while len(self._cache) > CACHE_SIZE:
                    self._cache.pop(next(iter(self._cache)))
                return self._cache[position]
        except TimeoutError as error:
            took = f"took longer than {self._bounds.timeout_s:g} s."
            why = f"folding, and the wait for other queries, {took}"
            raise TooFarBack(position, why) from error

    async def _fold_to(self, position: int) -> ClusterSnapshot:
        start = await self._history.run(lambda history: _fold_start(history, position))
        folding = start.folding
        if (distance := position - folding.position) > self._bounds.facts:
            raise TooFarBack(position, _too_long(distance, position))
        async with self._open_facts() as facts:
            while folding.position < position:
                await self._fold_next(folding, facts, position)
        twin_columns = await asyncio.to_thread(folding.twin_columns)
        return ClusterSnapshot(position, start.committed_at, folding.cluster_state, twin_columns)

    async def _fold_next(self, folding: FoldedState, facts: FactSource, position: int) -> None:
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
    committed_at: int  # of the requested position


def _fold_start(history: History, position: int) -> _FoldStart:
    committed_at = history.committed_at(position) if position else None
    return _FoldStart(start_before(history, position), committed_at or 0)


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
