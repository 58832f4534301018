"""How a process ends: after a signal or the failure of a task, in a bounded time, with its code."""

import os
import signal
import threading
from types import TracebackType

from joulie_bus.runtime.logging import get_logger

INTERRUPTED = 130  # what a shell expects after Ctrl-C
KILLED = 1
END_S = 20.0  # Kubernetes waits 30 s after SIGTERM, the supervisor less and kills sooner
log = get_logger("process")


class Ending:
    """A context manager around the work of the process, which may take `END_S` to end."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None
        self.code = 0
        self.why = ""  # empty: it does not end

    def __enter__(self) -> "Ending":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def on_signal(self, number: signal.Signals) -> None:
        self.code = code_after(number)
        self._begin(number.name)

    def on_failure(self, task: str) -> None:
        self._begin(f"the failure of the task {task}")

    def _begin(self, why: str) -> None:
        if self.why:
            return
        self.why = f"ends after {why}"
        self._timer = threading.Timer(END_S, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def _give_up(self) -> None:
        """A thread of a library, or a disk that hangs, must not keep the process."""
        log.error("killed", why=f"it {self.why}, and has not ended in {END_S:g} s")
        os._exit(KILLED)


def code_after(number: signal.Signals) -> int:
    return INTERRUPTED if number is signal.SIGINT else 0
