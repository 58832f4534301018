"""The identity of the monotonic clock: processes with the same one may compare its times."""

import uuid
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def monotonic_clock() -> str:
    """The boot of this kernel, since which its monotonic clock counts; elsewhere this process."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return str(uuid.uuid4())
