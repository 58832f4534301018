"""What answers look at: the newest board for which all is worked out that does not depend on a pod.

A view that moves asks for work: rows are read, a board is made of them, and a standing of that.
Answers come between these steps, so that they wait for one of them at most, and do none themselves.
A view that moves hundreds of times a second is not looked at each time.
"""

import asyncio
import gc
import time
from typing import Protocol

from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.pacing import rest_s
from joulie_extender.decide.node_terms import standing_of
from joulie_extender.decide.scoring import Weights
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.view.view import Snapshot

log = get_logger("extender")
SHARE = 0.25  # of a core, at most, goes into looking; a look takes about a millisecond
LONGEST_REST_S = 0.01  # nobody waits longer for what is new, however much the last look cost
NO_AGE_MS = 10**12  # nothing was ever heard
NOTHING = Snapshot(0, TwinColumns.empty(), NO_AGE_MS)


class Moving(Protocol):
    """What it asks of a view."""

    @property
    def is_ready(self) -> bool: ...

    @property
    def age_ms(self) -> int: ...

    def snapshot(self) -> Snapshot: ...

    async def moved_since(self, moves: int) -> int: ...


class CurrentSnapshot:
    """Without a view, and until a board of it is ready, there is nothing to be seen."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._view: Moving | None = None
        self._ready = NOTHING

    @property
    def is_ready(self) -> bool:
        return self._ready is not NOTHING

    def snapshot(self) -> Snapshot:
        """Its age is that of the view: how long ago the projector was last heard of."""
        if self._view is None:
            return NOTHING
        position, twin_columns, _, namespaces = self._ready
        return Snapshot(position, twin_columns, self._view.age_ms, namespaces)

    async def follow(self, view: Moving) -> None:
        """For as long as it is awaited. What was ready last stays, whatever becomes of the view."""
        self._view = view
        moves = 0
        while True:
            moves = await view.moved_since(moves)
            if not view.is_ready:
                continue
            began = time.thread_time()
            seen = view.snapshot()
            spent_s = time.thread_time() - began
            await asyncio.sleep(0)
            began = time.thread_time()
            self._stand(seen)
            spent_s += time.thread_time() - began
            is_first, self._ready = not self.is_ready, seen
            if is_first:
                # What is here now stays: the collector need not walk through it in every answer.
                gc.collect()
                gc.freeze()
            await asyncio.sleep(min(rest_s(spent_s, SHARE), LONGEST_REST_S))

    def _stand(self, seen: Snapshot) -> None:
        """Takes what was worked out for the board before, so that this one follows it at once."""
        try:
            standing_of(seen.twin_columns, time.time_ns(), seen.age_ms, self._weights)
        except Exception:
            log.exception("thinking_ahead_failed", what="each answer tries, and falls back")
