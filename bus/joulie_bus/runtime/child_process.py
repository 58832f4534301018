"""Settings of child processes: their end with the parent, and their priority."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from joulie_bus.runtime.tasks import background

NICEST = 19
START_S = 10.0  # until then it runs at normal priority, as startup takes much CPU once
# The kernel accepts ten of these writes a second from all users other than root together.
TRIES, PAUSE_S = 25, 0.2


def die_with_parent() -> None:
    """On Linux, the children of a killed supervisor are killed too. Elsewhere they keep running."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def giving_way(
    leader: int, nice: int, after_s: float = START_S
) -> AbstractAsyncContextManager[object]:
    """Lowers the priority of a process that leads its own session, once it has started."""
    return background(_later(leader, nice, after_s), f"{leader} gives way")


async def _later(leader: int, nice: int, after_s: float) -> None:
    await asyncio.sleep(after_s)
    with contextlib.suppress(OSError):  # it has ended, or this user may not change it
        await give_way(leader, nice)


async def give_way(leader: int, nice: int) -> None:
    """Lowers the priority of the whole session.

    With `sched_autogroup_enabled` Linux schedules sessions first and processes within them second.
    Then the nice value of a process that is alone in its session has no effect.
    """
    now = os.getpriority(os.PRIO_PROCESS, leader)
    os.setpriority(os.PRIO_PGRP, leader, min(NICEST, now + nice))  # all its threads
    session = session_of(leader)
    with contextlib.suppress(OSError):  # this system has none
        for _ in range(TRIES):
            try:
                session.write_text(str(nice))
            except BlockingIOError:
                await asyncio.sleep(PAUSE_S)
            else:
                return


def session_of(leader: int) -> Path:
    """The file that sets the priority of the session."""
    return Path(f"/proc/{leader}/autogroup")
