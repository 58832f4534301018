"""How well the cluster can be seen just now: what is not seen is not planned upon."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

Monotonic = Callable[[], float]


class ClusterVisibility(NamedTuple):
    """How well the cluster can be seen just now."""

    blind: str = ""  # why what is believed of it cannot be relied on; empty if it can
    pods_known: bool = True  # has the log been told of every pod that runs?


def clear_sight() -> ClusterVisibility:
    return ClusterVisibility()


class Eye:
    """Upon one kind of object; opened and closed by its watcher."""

    def __init__(self, kind: str, clock: Monotonic = time.monotonic) -> None:
        self.kind = kind
        self.listed = asyncio.Event()  # once: what was there has been told
        self._clock = clock
        self._closed_at: float | None = clock()

    @property
    def is_open(self) -> bool:
        return self._closed_at is None

    @property
    def closed_s(self) -> float:
        return 0.0 if self._closed_at is None else self._clock() - self._closed_at

    def open(self) -> None:
        """A watch goes on from the last thing that was told."""
        self._closed_at = None

    def close(self) -> None:
        if self._closed_at is None:
            self._closed_at = self._clock()


class Eyes:
    """All that plans rest on. A watch that breaks is opened again in a moment: `patience_s`."""

    def __init__(self, clock: Monotonic = time.monotonic) -> None:
        self.nodes = Eye("nodes", clock)
        self.pods = Eye("pods", clock)
        self.is_folded = False  # the view holds what the first lists told

    async def listed(self) -> None:
        await self.nodes.listed.wait()
        await self.pods.listed.wait()

    def sight(self, patience_s: float) -> ClusterVisibility:
        """Pods that may have come meanwhile keep a node's profile from the first moment on."""
        return ClusterVisibility(self._blind(patience_s), pods_known=self.pods.is_open)

    def _blind(self, patience_s: float) -> str:
        eyes: Sequence[Eye] = (self.nodes, self.pods)
        unread = [eye.kind for eye in eyes if not eye.listed.is_set()]
        if unread:
            return f"the API server has not yet shown its {' and '.join(unread)}"
        if not self.is_folded:
            return "the view does not yet hold what the API server has shown"
        lost = [eye.kind for eye in eyes if eye.closed_s > patience_s]
        if lost:
            return f"the API server has shown no {' and '.join(lost)} for {patience_s:g} s"
        return ""
