"""Liveness and readiness of the projector: its position moves, or there are no events to fold."""

import time
from collections.abc import Callable

START_S = 600.0  # to read the rows of a large cluster on a machine that is busy


class Liveness:
    """The state that the probes read, from another thread; `observe` is called with every beat."""

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._position = -1
        self._moved = self._seen = clock()
        self._waits_for = "the database"
        self._broker_problem = ""
        self._is_starting = False

    def mark_standby(self) -> None:
        """A standby is ready and alive: another projector holds the lease."""
        self._waits_for = ""
        self._seen = self._moved = self._clock()

    def wait_for_broker(self) -> None:
        """Alive, and not ready: another projector may reach the broker."""
        self._waits_for = "the broker"
        self._seen = self._moved = self._clock()

    def start_to_lead(self) -> None:
        """Alive, and not ready: it reads the rows, and may have to record that state was lost."""
        self._waits_for = "the database and the broker"
        self._is_starting = True
        self._seen = self._moved = self._clock()

    def observe(self, position: int, lag: int, broker_problem: str = "") -> None:
        self._waits_for = ""
        self._broker_problem = broker_problem
        self._is_starting = False
        self._seen = self._clock()
        if position != self._position or not lag:
            self._position, self._moved = position, self._seen

    def alive(self) -> str:
        """The reason why it is not alive; empty if it is."""
        now = self._clock()
        timeout_s = max(self._timeout_s, START_S) if self._is_starting else self._timeout_s
        if now - self._seen > timeout_s:
            return f"no beat for {now - self._seen:.0f} s"
        if now - self._moved > timeout_s:
            return (
                f"at position {self._position} for {now - self._moved:.0f} s, with events waiting"
            )
        return ""

    def ready(self) -> str:
        """The reason why it is not ready; empty if it is."""
        if self._waits_for:
            return f"waiting for {self._waits_for}"
        return self._broker_problem or self.alive()
