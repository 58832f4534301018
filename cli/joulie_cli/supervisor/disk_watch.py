"""Watches the disk of the data directory while components run.

Each component logs that it cannot write, but to a file on the same disk.
"""

import time
from collections.abc import Callable
from pathlib import Path

from joulie_bus.core.times import duration
from joulie_bus.runtime.logging import get_logger
from joulie_projections.component.room import lack_of_room

LOOK_S = 2.0
SAY_AGAIN_S = 60.0
log = get_logger("up")


class DiskWatch:
    """`why` is empty while the disk has room."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.why = ""
        self._directory = directory
        self._clock = clock
        self._full_since = self._said_at = 0.0
        self._earlier_s = 0.0  # of full disks that had room again

    @property
    def full_s(self) -> float:
        """How long the disk was full, until now."""
        return self._earlier_s + (self._clock() - self._full_since if self.why else 0.0)

    def look(self) -> bool:
        """Returns whether a disk that was full has room again."""
        before, why = self.why, lack_of_room(self._directory)
        if why:
            self._note_full(why, is_new=not before)
        elif before:
            self._earlier_s, self.why = self.full_s, ""
            what = (
                "the broker is started again, because its streams do not write again by themselves"
            )
            full_s = round(self._earlier_s, 1)
            log.warning("disk_has_room", data=str(self._directory), full_s=full_s, what=what)
        return bool(before and not why)

    def _note_full(self, why: str, *, is_new: bool) -> None:
        now, self.why = self._clock(), why
        if is_new:
            self._full_since = now
        if is_new or now - self._said_at >= SAY_AGAIN_S:
            self._said_at = now
            log.error(
                "disk_full",
                data=str(self._directory),
                why=why,
                what="facts are not folded, and pods are answered without an entry in the log",
                next="make room there; nothing has to be started again by hand",
            )

    @property
    def sentence(self) -> str:
        """Empty if the disk had room all the time."""
        if not self.full_s:
            return ""
        until = f"and is still full ({self.why})" if self.why else "and has room again"
        return (
            f"The disk of {self._directory} was full for {duration(self.full_s)}, {until}: "
            "pods that were answered for in that time may have no entry in the log."
        )
