"""The identity of the monotonic clock: processes with the same one may compare its times."""

import uuid
from pathlib import Path

_PROC = Path("/proc")


def monotonic_clock() -> str:
    """The boot that it counts from, and the time namespace; elsewhere one of this process alone."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(_PROC / 'self/ns/time').stat().st_ino}"
    except OSError:
        return str(uuid.uuid4())
