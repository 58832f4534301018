"""Identifies the process that holds a lease, so that the lease of a dead process is taken over at
once instead of after its expiry.

    8c1b...-boot-id/4026531836/4711/8123456/9f0a...
    boot id / PID namespace / process id / start time / random part, one per owner in a process

Host name and process id do not identify a process in a container: two containers may share both.
The absence of a process is conclusive only within one PID namespace of one boot. In all other cases
the owner is not known to be gone, and the lease has to expire.
"""

import os
import secrets
import socket
from typing import NamedTuple

from joulie_projections.store.monotonic import PROC, boot_id

_PROC = PROC
_STARTED = 19  # index in /proc/PID/stat after the name: start time, in clock ticks since the boot


class _ProcessIdentity(NamedTuple):
    boot: str
    namespace: str
    pid: str
    started: str


def new_owner() -> str:
    """A new owner in this process; no two calls return the same one."""
    pid = os.getpid()
    unknown = _ProcessIdentity("unknown", socket.gethostname(), str(pid), "0")
    return "/".join((*(_identity_of(pid) or unknown), secrets.token_hex(8)))


def is_gone(owner: str) -> bool:
    """Whether the process has certainly ended. False if that cannot be determined."""
    *parts, _ = owner.split("/")
    own = _identity_of(os.getpid())
    if own is None or len(parts) != len(own):
        return False
    process = _ProcessIdentity(*parts)
    if process[:2] != own[:2] or not process.pid.isdecimal():
        return False
    try:
        return _started(int(process.pid)) != process.started
    except (OSError, ValueError):
        return not _exists(int(process.pid))  # /proc may hide processes of other users


def _identity_of(pid: int) -> _ProcessIdentity | None:
    """None on a system without /proc; no process is known to be gone there."""
    try:
        namespace = str((_PROC / "self/ns/pid").stat().st_ino)
        return _ProcessIdentity(boot_id(_PROC), namespace, str(pid), _started(pid))
    except (OSError, ValueError):
        return None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _started(pid: int) -> str:
    """The start time, which distinguishes a process from a later one with the same id."""
    stat = (_PROC / str(pid) / "stat").read_text()
    fields = stat.rpartition(")")[2].split()  # the process name before it may hold any character
    if len(fields) <= _STARTED:
        raise ValueError(f"/proc/{pid}/stat has {len(fields)} fields")
    return fields[_STARTED]
