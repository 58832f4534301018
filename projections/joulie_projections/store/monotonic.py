"""Which start of the machine this is, and which monotonic clock: times of another mean nothing."""

import os
import uuid
from functools import cache
from pathlib import Path

PROC = Path("/proc")


@cache
def _of_this_process() -> str:
    return str(uuid.uuid4())


def boot_id(proc: Path = PROC) -> str:
    """Where the system has none, an id of this process alone, which equals that of no other."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip() or _of_this_process()
    except OSError:
        return _of_this_process()


def monotonic_clock() -> str:
    """Processes with the same one may compare its times: the boot and the time namespace."""
    try:
        return f"{boot_id()}/{(PROC / 'self/ns/time').stat().st_ino}"
    except OSError:
        return f"{boot_id()}/{os.getpid()}"  # another process may be in another namespace
