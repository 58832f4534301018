"""Which life of which process holds a lease, so that a process that is known to be gone need not be
waited for.

    8c1b...-boot-id/4026531836/4711/8123456/9f0a...
    boot of the machine / PID namespace / process id / when it started / one of several within it

A container's host name and process id are no identity: two containers may have the same ones. Only
within one PID namespace of one boot does the absence of a process say anything; anything else is
"not known to be gone", and the lease is waited for.
"""

import os
import secrets
import socket
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_STARTED = 19  # among the fields of /proc/PID/stat behind the name: in clock ticks since the boot


class _Life(NamedTuple):
    boot: str
    namespace: str
    pid: str
    started: str


def new_owner() -> str:
    """Of this process, and of no other reader in it."""
    life = _life_of(os.getpid()) or _Life("unknown", socket.gethostname(), str(os.getpid()), "0")
    return "/".join((*life, secrets.token_hex(8)))


def is_gone(owner: str) -> bool:
    """Whether the process is certainly no more. False for what cannot be known."""
    *parts, _ = owner.split("/")
    own = _life_of(os.getpid())
    if own is None or len(parts) != len(own):
        return False
    life = _Life(*parts)
    if life[:2] != own[:2] or not life.pid.isdecimal():
        return False
    try:
        return _started(int(life.pid)) != life.started
    except (OSError, ValueError):
        return not _exists(int(life.pid))  # /proc may hide processes of other users


def _life_of(pid: int) -> _Life | None:
    """None where the system does not tell: then nothing is known of others, too."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = str((_PROC / "self/ns/pid").stat().st_ino)
        return _Life(boot, namespace, str(pid), _started(pid))
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
    """A number of another process may be given again, but not with the same start."""
    stat = (_PROC / str(pid) / "stat").read_text()
    fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    if len(fields) <= _STARTED:
        raise ValueError(f"/proc/{pid}/stat has {len(fields)} fields")
    return fields[_STARTED]
