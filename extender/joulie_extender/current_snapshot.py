"""The snapshot that answers use: the newest one of the view, or one some milliseconds older.

An answer brings the snapshot up to date if the view has moved, which takes a fraction of a
millisecond at 5,000 nodes. Changes of many nodes take longer: a task between the answers follows
them, and changes that no answer asks for.
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
SHARE = 0.25  # of a core, at most, for following the view between answers
LONGEST_REST_S = 0.1  # after an update between answers, however much it cost
UNASKED_S = 0.1  # changes of few nodes wait so long for an answer that brings them up to date
YOUNG_S = 0.01  # a snapshot is not renewed before: kube-scheduler asks twice about a pod
MOST_CHANGED = 64  # nodes that an answer brings up to date, in a millisecond
FIRST_HEARTBEAT_S = 3.0  # twelve heartbeats of the projector
NO_SNAPSHOT = ViewSnapshot(0, TwinColumns.empty(), NEVER_MS, behind_ms=NEVER_MS)


class FollowedView(Protocol):
    """What `CurrentSnapshot` requires of a view."""

    @property
    def is_ready(self) -> bool: ...

    @property
    def moves(self) -> int: ...

    @property
    def nodes_changed(self) -> int: ...

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
        self._moves = 0  # of the view, at that snapshot
        self._renewed_at = 0.0

    @property
    def is_ready(self) -> bool:
        return self._ready is not NO_SNAPSHOT

    def snapshot(self) -> ViewSnapshot:
        """With its present ages: the view may have moved on, or stand still."""
        view = self._view
        if view is None or not self.is_ready:
            return NO_SNAPSHOT
        if view.moves != self._moves and self._can_renew(view):
            self._renew(view)
        heard_ms, behind_ms = view.ages_of(self._ready)
        return self._ready._replace(age_ms=heard_ms, behind_ms=behind_ms)

    def _can_renew(self, view: FollowedView) -> bool:
        is_young = time.monotonic() < self._renewed_at + YOUNG_S
        return view.is_ready and not is_young and view.nodes_changed <= MOST_CHANGED

    def _renew(self, view: FollowedView) -> None:
        moves, snapshot = view.moves, self._taken(view)
        self._compute_node_terms(snapshot)
        self._publish(snapshot, moves)

    def _taken(self, view: FollowedView) -> ViewSnapshot:
        snapshot = view.snapshot()
        return snapshot._replace(pods=self.in_flight.known(snapshot.pods))

    def _publish(self, snapshot: ViewSnapshot, moves: int) -> None:
        self._ready, self._moves, self._renewed_at = snapshot, moves, time.monotonic()

    def now_ns(self) -> int:
        """The time by the broker's clock, which also stamped the readings."""
        return self._view.now_ns() if self._view else time.time_ns()

    async def follow(self, view: FollowedView) -> None:
        """Runs until cancelled. The last snapshot that was ready stays, whatever happens to the
        view.
        """
        self._view = view
        seen = 0
        while True:
            seen = await view.moved_since(seen)
            if view.is_ready and not (self.is_ready and self._may_wait(view)):
                await self._follow_once(view)

    def _may_wait(self, view: FollowedView) -> bool:
        """Whether the next answer brings the snapshot up to date."""
        is_small = view.nodes_changed <= MOST_CHANGED
        return is_small and time.monotonic() < self._renewed_at + UNASKED_S

    async def _follow_once(self, view: FollowedView) -> None:
        moves, began = view.moves, time.thread_time()
        snapshot = self._taken(view)
        spent_s = time.thread_time() - began
        await asyncio.sleep(0)
        if self.is_ready and self._moves >= moves:
            return  # an answer came between, and renewed it
        began = time.thread_time()
        self._compute_node_terms(snapshot)
        spent_s += time.thread_time() - began
        if not self.is_ready:
            await _first_heartbeat(view, snapshot)
            # Excluded from garbage collection, which would otherwise run during replies.
            gc.collect()
            gc.freeze()
        self._publish(snapshot, moves)
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
