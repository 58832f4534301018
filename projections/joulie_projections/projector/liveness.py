"""Is the projector alive? Its position moved, or there was nothing to do."""

import time
from collections.abc import Callable


class Liveness:
    """Looked at from another thread; `saw` comes with every beat."""

    def __init__(self, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._position = -1
        self._moved = self._seen = clock()
        self._waits_for = "the database"

    def mark_standby(self) -> None:
        """Another one leads; being there is all that is asked."""
        self._waits_for = ""
        self._seen = self._moved = self._clock()

    def saw(self, position: int, lag: int) -> None:
        self._waits_for = ""
        self._seen = self._clock()
        if position != self._position or not lag:
            self._position, self._moved = position, self._seen

    def alive(self) -> str:
        """Why not; empty if all is well."""
        now = self._clock()
        if now - self._seen > self._patience_s:
            return f"no sign of life for {now - self._seen:.0f} s"
        if now - self._moved > self._patience_s:
            return (
                f"at position {self._position} for {now - self._moved:.0f} s, with events waiting"
            )
        return ""

    def ready(self) -> str:
        return f"waiting for {self._waits_for}" if self._waits_for else self.alive()
