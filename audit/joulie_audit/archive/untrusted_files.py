"""Reads files of an archive that an attacker may have written: reading ends, and what is wrong with
a file is one error that names it.
"""

import errno
import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from joulie_bus.errors import ArchiveBroken
from joulie_bus.runtime.own_files import open_regular

LARGEST_KEYS = 1 << 20
LARGEST_MANIFEST = 1 << 20
LARGEST_FILE = 1 << 30  # a reader holds a part in memory; a sparse file of a terabyte takes no disk


def checksum(file: Path) -> str:
    with open_regular(file) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def require_checksum(file: Path, content: bytes, sha256: str) -> None:
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ArchiveBroken(str(file), "its SHA-256 does not match")


def keys_of(file: Path) -> bytes | None:
    """The public keys beside the parts; None without the file."""
    return content_of(file, LARGEST_KEYS) if os.path.lexists(file) else None


def content_of(file: Path, largest: int = LARGEST_FILE) -> bytes:
    """Of a regular file: a link to a device would never end."""
    try:
        with open_regular(file) as opened:
            is_too_large = os.fstat(opened.fileno()).st_size > largest
            content = b"" if is_too_large else opened.read(largest)
    except FileNotFoundError as error:
        raise ArchiveBroken(str(file), "it is missing") from error
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror or str(error)
        raise ArchiveBroken(str(file), why) from error
    if is_too_large:
        raise ArchiveBroken(str(file), f"it is larger than {largest >> 20} MiB")
    return content


def require_plain_name(manifest: Path, name: str) -> None:
    if not name or name != Path(name).name:
        raise ArchiveBroken(str(manifest), f"{name!r} is no name of a file beside it")


@contextmanager
def reading(place: Path) -> Generator[None]:
    """A file whose checksum was made again for it may hold rows of any kind."""
    try:
        yield
    except ArchiveBroken:
        raise
    except Exception as error:
        why = f"its rows are none of a part ({type(error).__name__}: {error})"
        raise ArchiveBroken(str(place), why) from error
