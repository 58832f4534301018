"""Files and directories of this program that no other user may have planted.

Another user that could write to the data directory, or that made it before, could give this program
a signing key or passwords that it knows. Links are not followed, and pipes and devices not read.
"""

import contextlib
import errno
import io
import os
import stat
from pathlib import Path

from joulie_bus.errors import DataDirectoryError

_GROUP_OR_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def open_regular(path: Path) -> io.BufferedReader:
    """Opens a regular file for reading. Raises OSError for a link, a pipe, a device."""
    return open(path, "rb", opener=regular)


def regular(path: str, flags: int) -> int:
    """An opener for `open`. Raises OSError for a link, a pipe, a device."""
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return file


def read_own(path: Path) -> bytes:
    """The content of a file that this user or root made. Raises DataDirectoryError for any other,
    and FileNotFoundError for none."""
    try:
        with open_regular(path) as opened:
            found = os.fstat(opened.fileno())
            if why := _why_foreign(found) or _others_write(found):
                raise _refused(path, why)
            return opened.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror or str(error)
        raise _refused(path, why) from error


def require_own(directory: Path) -> None:
    """Raises DataDirectoryError if another user made the directory or something in it, or may write
    to it. The root of a mounted volume may be open to all: only root mounts it."""
    found = directory.stat()
    is_volume = directory.is_mount() and not found.st_mode & stat.S_ISVTX
    why = _why_foreign(found) or ("" if is_volume else _may_write(found))
    if why:
        raise _refused(directory, why)
    with os.scandir(directory) as entries:
        for entry in entries:
            # Another component may have renamed or removed it since. It is not read then.
            with contextlib.suppress(FileNotFoundError):
                if why := _why_foreign(entry.stat(follow_symlinks=False)):
                    raise _refused(Path(entry.path), why)


def sync(path: Path) -> None:
    """What was written to the file, or the names in the directory, outlives a power failure."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _why_foreign(found: os.stat_result) -> str:
    if found.st_uid in (0, os.geteuid()):
        return ""
    return f"it belongs to the user with number {found.st_uid}"


def _may_write(found: os.stat_result) -> str:
    mode = found.st_mode & _GROUP_OR_OTHERS
    return f"others may write to it (mode {stat.S_IMODE(found.st_mode):o})" if mode else ""


def _others_write(found: os.stat_result) -> str:
    """A group may: Kubernetes gives the files of a volume to the group of the pod."""
    return _may_write(found) if found.st_mode & stat.S_IWOTH else ""


def _refused(path: Path, why: str) -> DataDirectoryError:
    return DataDirectoryError(
        f"{path} is not trusted: {why}. Another user could have put it there, with keys and "
        "passwords that it knows. Nothing was read from it. Check what it holds; then give it to "
        "the user that runs Joulie (chown) and to it alone (chmod go-w), or choose another "
        "directory with --data."
    )
