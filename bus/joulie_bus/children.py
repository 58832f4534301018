"""What a process of ours is told between its birth and its own program."""

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

OWN_SESSION = Path("/proc/self/autogroup")
TRIES, PAUSE_S = 25, 0.02  # whoever is not root is heard ten times a second, all processes together


def die_with_parent() -> None:
    """Linux: a supervisor that is killed takes its children along. Elsewhere they are left."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def give_way(nice: int) -> None:
    """Where there is too little of the processor, others go before; to be told in a new session.

    Linux may share it out among sessions before it looks at processes (`sched_autogroup_enabled`);
    then a process that is alone in its session is as nice as that session, and no nicer.
    """
    os.nice(nice)
    with contextlib.suppress(OSError):  # no such thing here
        for _ in range(TRIES):
            try:
                OWN_SESSION.write_text(str(nice))
            except BlockingIOError:
                time.sleep(PAUSE_S)
            else:
                return
