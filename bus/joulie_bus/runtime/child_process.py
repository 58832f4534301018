"""What a process of ours is told by whoever started it."""

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
START_S = 10.0  # until then it is let through like all others: much at once, then never again
TRIES, PAUSE_S = 25, 0.2  # whoever is not root is heard ten times a second, all processes together


def die_with_parent() -> None:
    """Linux: a supervisor that is killed takes its children along. Elsewhere they are left."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def giving_way(
    leader: int, nice: int, after_s: float = START_S
) -> AbstractAsyncContextManager[object]:
    """Once started, a process with a session of its own leaves the processor to others first."""
    return background(_later(leader, nice, after_s), f"{leader} gives way")


async def _later(leader: int, nice: int, after_s: float) -> None:
    await asyncio.sleep(after_s)
    with contextlib.suppress(OSError):  # it is gone, or nobody may tell it here
        await give_way(leader, nice)


async def give_way(leader: int, nice: int) -> None:
    """Linux may share the processor out among sessions before it looks at processes
    (`sched_autogroup_enabled`); then a process that is alone in its session is as nice as that
    session, and no nicer.
    """
    now = os.getpriority(os.PRIO_PROCESS, leader)
    os.setpriority(os.PRIO_PGRP, leader, min(NICEST, now + nice))  # all of its threads
    session = session_of(leader)
    with contextlib.suppress(OSError):  # no such thing here
        for _ in range(TRIES):
            try:
                session.write_text(str(nice))
            except BlockingIOError:
                await asyncio.sleep(PAUSE_S)
            else:
                return


def session_of(leader: int) -> Path:
    """Where it is told how nice it is."""
    return Path(f"/proc/{leader}/autogroup")
