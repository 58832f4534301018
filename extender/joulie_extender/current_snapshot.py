"""The snapshot that answers use: the newest one for which the node terms are computed.

When the view changes, rows are read, columns are updated, and node terms are computed. Answers run
between these steps, so that an answer waits for at most one of them and computes none itself. A
view that changes hundreds of times per second is not followed at every change.
"""

import asyncio
import gc
import time
from typing import Protocol

from joulie_bus.core.pacing import rest_s
from joulie_bus.runtime.logging import get_logger
from joulie_extender.answering.in_flight import PodsInFlight
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.node_terms import node_terms_of
from joulie_extender.gpu.expected_loss import prepare
from joulie_extender.gpu.fit import FRAGMENTATION
from joulie_projections.state.completeness import NEVER_MS, ViewAges
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.view.view import ViewSnapshot

log = get_logger("extender")
SHARE = 0.25  # of a core, at most, for following the view; one update takes about a millisecond
LONGEST_REST_S = 0.01  # the longest pause, however much the last update cost
FIRST_HEARTBEAT_S = 3.0  # twelve heartbeats of the projector
NO_SNAPSHOT = ViewSnapshot(0, TwinColumns.empty(), NEVER_MS, behind_ms=NEVER_MS)


class FollowedView(Protocol):
    """What `CurrentSnapshot` requires of a view."""

    @property
    def is_ready(self) -> bool: ...

    def snapshot(self) -> ViewSnapshot: ...

    def ages_of(self, seen: ViewSnapshot) -> ViewAges: ...

    async def moved_since(self, moves: int) -> int: ...

    def now_ns(self) -> int: ...


class CurrentSnapshot:
    """Without a view, and until its first snapshot is ready, it returns an empty snapshot."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self.in_flight = PodsInFlight()  # answered from these snapshots
        self._view: FollowedView | None = None
        self._ready = NO_SNAPSHOT

    @property
    def is_ready(self) -> bool:
        return self._ready is not NO_SNAPSHOT

    def snapshot(self) -> ViewSnapshot:
        """With its present ages: the view may have moved on, or stand still."""
        if self._view is None or not self.is_ready:
            return NO_SNAPSHOT
        heard_ms, behind_ms = self._view.ages_of(self._ready)
        return self._ready._replace(age_ms=heard_ms, behind_ms=behind_ms)

    def now_ns(self) -> int:
        """The time by the broker's clock, which also stamped the readings."""
        return self._view.now_ns() if self._view else time.time_ns()

    async def follow(self, view: FollowedView) -> None:
        """Runs until cancelled. The last snapshot that was ready stays, whatever happens to the
        view.
        """
        self._view = view
        moves = 0
        while True:
            moves = await view.moved_since(moves)
            if not view.is_ready:
                continue
            began = time.thread_time()
            snapshot = view.snapshot()
            snapshot = snapshot._replace(pods=self.in_flight.known(snapshot.pods))
            spent_s = time.thread_time() - began
            await asyncio.sleep(0)
            began = time.thread_time()
            self._compute_node_terms(snapshot)
            spent_s += time.thread_time() - began
            if not self.is_ready:
                await _first_heartbeat(view, snapshot)
                # Excluded from garbage collection, which would otherwise run during replies.
                gc.collect()
                gc.freeze()
            self._ready = snapshot
            await asyncio.sleep(min(rest_s(spent_s, SHARE), LONGEST_REST_S))

    def _compute_node_terms(self, snapshot: ViewSnapshot) -> None:
        columns, earlier = snapshot.twin_columns, self._ready.twin_columns
        try:
            node_terms_of(columns, self.now_ns(), snapshot.oldest_ms, self._weights, earlier)
            if self._weights.gpu.packing == FRAGMENTATION:
                prepare(columns, self._weights.gpu)
        except Exception:
            log.exception("node_terms_failed", what="each answer computes them, or falls back")


async def _first_heartbeat(view: FollowedView, seen: ViewSnapshot) -> None:
    """Waits until the ages of the first snapshot are known: rules that refuse old state could not
    hold before.

    If no projector sends heartbeats, answers are given all the same, and record that the ages are
    unknown.
    """
    until = time.monotonic() + FIRST_HEARTBEAT_S
    while view.ages_of(seen).oldest_ms >= NEVER_MS and time.monotonic() < until:
        await asyncio.sleep(0.01)
