"""What the writer keeps on disk: for each limit that it took, the value before and its own.

It is on disk before the hardware is touched, so that a process that was killed at any line can
give back what was there.
"""

import fcntl
import json
import os
from pathlib import Path

from joulie_agent.caps.rules import Remembered

LONGEST = 1 << 20


class BadMemory(Exception):
    """The file is not one of the writer's, with the reason. Nothing is set while it is there."""


class Memory:
    """The file of one writer. It is locked as long as the process runs."""

    def __init__(self, file: Path) -> None:
        """Raises BadMemory, also while another process has the file."""
        self._file = file
        self._lock = _locked(file.with_suffix(".lock"))
        self._known = _read(file)

    def close(self) -> None:
        os.close(self._lock)

    def get(self, name: str) -> Remembered | None:
        return self._known.get(name)

    def names(self) -> list[str]:
        return sorted(self._known)

    def put(self, name: str, remembered: Remembered) -> None:
        """Returns when it is on disk."""
        if self._known.get(name) != remembered:
            self._write(self._known | {name: remembered})

    def drop(self, name: str) -> None:
        if name in self._known:
            self._write({other: of for other, of in self._known.items() if other != name})

    def _write(self, known: dict[str, Remembered]) -> None:
        """A new file replaces the old one, so that a reader never sees half of one."""
        fresh = self._file.with_suffix(".new")
        listed = {name: {"before": of.before, "ours": list(of.ours)} for name, of in known.items()}
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"limits": listed}, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._file)
        folder = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._known = known


def _locked(file: Path) -> int:
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BadMemory(f"{file}: {os.strerror(error.errno or 0)}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise BadMemory(
            f"{file} is locked: another process sets the limits of this node"
        ) from error
    return descriptor


def _read(file: Path) -> dict[str, Remembered]:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadMemory(f"{file}: {os.strerror(error.errno or 0)}") from error
    with os.fdopen(descriptor, "rb") as opened:
        text = opened.read(LONGEST)
    try:
        limits = json.loads(text)["limits"]
        return {
            str(name): Remembered(int(of["before"]), tuple(int(value) for value in of["ours"]))
            for name, of in limits.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadMemory(f"{file} is not a file of limits: {error}") from error
