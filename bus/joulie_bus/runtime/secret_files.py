"""Files that only their owner may read: passwords, keys, and files that refer to them."""

import errno
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.own_files import sync

OTHERS = 0o077
log = get_logger("files")


def write_private(path: Path, text: str) -> None:
    """Replaces the file atomically: on a full disk the old file stays."""
    with _written(path, text) as fresh:
        fresh.replace(path)
    sync(path.parent)


def keep_private(path: Path, text: str) -> None:
    """Creates the file if it does not exist; of several writers at once the first one wins."""
    with _written(path, text) as fresh, suppress(FileExistsError):
        os.link(fresh, path)
    sync(path.parent)


@contextmanager
def _written(path: Path, text: str) -> Generator[Path]:
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(fresh, "x", opener=private) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        yield fresh
    finally:
        fresh.unlink(missing_ok=True)


def make_private(path: Path) -> None:
    """Creates an empty file if none exists, and restricts it to its owner. Follows no link.

    An existing file is not opened: where a process closes a file, the system drops all locks that
    the process has on it, also those of SQLite's other connections. Another process that closes the
    database would then take itself for the last one, and remove the log that this one writes to.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None
    tighten(path)


def tighten(*paths: Path) -> None:
    """Removes the permissions of other users from existing files; logs files where it cannot."""
    for path in paths:
        try:
            mode = path.stat().st_mode
            if mode & OTHERS:
                path.chmod(mode & ~OTHERS & 0o7777)
                log.info("made_private", file=str(path))
        except FileNotFoundError:
            continue
        except OSError as error:
            why = error.strerror or str(error)
            log.warning(
                "not_private", file=str(path), why=why, what="others may read it; chmod 600"
            )


def private(path: str, flags: int) -> int:
    """An opener for `open` that creates files for their owner only, and follows no link."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
