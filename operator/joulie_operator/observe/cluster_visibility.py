"""Whether the watches of the cluster work: without them no plan is made."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

Monotonic = Callable[[], float]


class ClusterVisibility(NamedTuple):
    """Whether the known state of the cluster is complete and up to date."""

    problem: str = ""  # why no plan may be made; empty if plans may be made
    pods_known: bool = True  # whether every running pod has been published


def full_visibility() -> ClusterVisibility:
    return ClusterVisibility()


class WatchStatus:
    """The status of the watch of one kind of object, set by its watcher."""

    def __init__(self, kind: str, clock: Monotonic = time.monotonic) -> None:
        self.kind = kind
        self.listed = asyncio.Event()  # set after the first complete list
        self._clock = clock
        self._closed_at: float | None = clock()

    @property
    def is_open(self) -> bool:
        return self._closed_at is None

    @property
    def closed_s(self) -> float:
        return 0.0 if self._closed_at is None else self._clock() - self._closed_at

    def open(self) -> None:
        """A watch resumes at the last event that was received."""
        self._closed_at = None

    def close(self) -> None:
        if self._closed_at is None:
            self._closed_at = self._clock()


class WatchStatuses:
    """The watches that plans depend on. Short interruptions are tolerated."""

    def __init__(self, clock: Monotonic = time.monotonic) -> None:
        self.nodes = WatchStatus("nodes", clock)
        self.pods = WatchStatus("pods", clock)
        self.is_view_current = False  # the view contains the first lists

    def begin(self) -> None:
        """The kinds are listed from here on, for the first time or again."""
        self.nodes.listed.clear()
        self.pods.listed.clear()
        self.is_view_current = False

    async def wait_listed(self) -> None:
        await self.nodes.listed.wait()
        await self.pods.listed.wait()

    def visibility(self, tolerance_s: float) -> ClusterVisibility:
        """`pods_known` is False as soon as the watch of pods breaks: pods may start unseen."""
        return ClusterVisibility(self._problem(tolerance_s), pods_known=self.pods.is_open)

    def _problem(self, tolerance_s: float) -> str:
        watches: Sequence[WatchStatus] = (self.nodes, self.pods)
        unread = [watch.kind for watch in watches if not watch.listed.is_set()]
        if unread:
            return f"{' and '.join(unread)} have not been listed yet"
        if not self.is_view_current:
            return "the view does not contain the listed objects yet"
        lost = [watch.kind for watch in watches if watch.closed_s > tolerance_s]
        if lost:
            return f"the watch of {' and '.join(lost)} has been broken for {tolerance_s:g} s"
        return ""
