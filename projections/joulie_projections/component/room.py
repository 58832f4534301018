"""Whether a directory has room for what is about to be written."""

import shutil
import tempfile
from pathlib import Path

# With less, the broker or the database can fail with the next block or page that it appends.
FULL_BYTES = 8 * 2**20
PROBE_BYTES = 2**20


def lack_of_room(directory: Path, least_bytes: int | None = None) -> str:
    """Why not so many bytes can be written, by default those of a full disk; empty if they can.
    A quota shows only when data is written."""
    try:
        free = shutil.disk_usage(directory).free
        if free < (FULL_BYTES if least_bytes is None else least_bytes):
            return f"{free / 2**20:.1f} MiB are free"
        with tempfile.TemporaryFile(dir=directory) as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as error:
        return error.strerror or str(error)
    return ""
