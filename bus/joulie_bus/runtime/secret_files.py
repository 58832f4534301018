"""Files that only their owner may read: passwords, keys, and files that refer to them.

Secrets of the settings are in files, too: `NATS_PASSWORD_FILE` names the file with NATS_PASSWORD.
The environment of a process is in the descriptions of containers and pods, and every child inherits
it. A file is read once, at start.
"""

import errno
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.own_files import sync

OTHERS = 0o077
SUFFIX = "_FILE"  # of a setting that names the file of a secret
_MOST_BYTES = 65_536
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


def make_private(path: Path, others: int = OTHERS) -> None:
    """Creates an empty file if none exists, without the permissions `others`. Follows no link.

    An existing file is not opened: where a process closes a file, the system drops all locks that
    the process has on it, also those of SQLite's other connections. Another process that closes the
    database would then take itself for the last one, and remove the log that this one writes to.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDONLY | os.O_CLOEXEC, 0o600))
        path.chmod(0o660 & ~others)  # whatever the umask is
    except FileExistsError:
        if path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None
    tighten(path, others=others)


def tighten(*paths: Path, others: int = OTHERS) -> None:
    """Removes the permissions of other users from existing files; logs files where it cannot."""
    for path in paths:
        try:
            mode = path.stat().st_mode
            if mode & others:
                path.chmod(mode & ~others & 0o7777)
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


def secret_in(path: str) -> str:
    """The text of the file, without the end of its last line. Links are followed: a mounted Secret
    consists of them."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is no regular file")
            content = file.read(_MOST_BYTES + 1)
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise ValueError("it is no text") from error
    if not text or len(content) > _MOST_BYTES:
        raise ValueError(f"it holds {len(content)} bytes" if text else "it is empty")
    return text


def _without_waiting(path: str, flags: int) -> int:
    """Opening a pipe would wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
