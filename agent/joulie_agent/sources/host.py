"""Files of the host, which a container may have mounted below another root.

Kernels and firmware of many makers write them. What no kernel should write is not read: a file that
blocks, has no end or leads elsewhere, a number that no meter has, a name that no event can hold.
"""

import os
import re
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from joulie_agent.report import CapRange, NotAvailable, Reading
from joulie_bus.events.bounds import LARGEST, WORD, has_control
from joulie_bus.runtime.logging import get_logger

LONGEST_FILE = 16 << 20  # /proc/cpuinfo has about 1.5 KB for each of up to 8,192 threads
MOST_FOLDERS = 10_000  # in one folder; a node has some hundreds of pods
MOST_REPORTED = 100
MOST_W = 1_000_000  # of one meter or limit
log = get_logger("agent")
_NATURAL = re.compile(r"[0-9]{1,19}")


class Unreadable(Exception):
    """A file of the host that is absent, refused or has other content than its kind has."""


class Host:
    """The host below `root`; a path is relative to it, such as `sys/class/powercap`."""

    def __init__(self, root: Path = Path("/"), node: str = "") -> None:
        self.root = root
        self._real_root = os.path.realpath(root)
        self._reported = set[Path]()
        self.node = node  # the name of this node, for what has none of its own

    def path(self, *parts: str) -> Path:
        return self.root.joinpath(*parts)

    def text(self, path: Path) -> str:
        """The content without the line end. Raises Unreadable."""
        try:
            return self._content(path).decode("utf-8", "replace").strip("\n\0 ")
        except OSError as error:
            raise self._unreadable(path, _reason(error)) from error

    def integer(self, path: Path) -> int:
        """Raises Unreadable, also for content that is no integer of 63 bits."""
        text = self.text(path)
        number = natural(text.removeprefix("-"))
        if number is None:
            raise self._unreadable(path, f"{text[:40]!a} is not a number")
        return -number if text.startswith("-") else number

    def count(self, path: Path) -> int:
        """Raises Unreadable, also for a negative number."""
        number = self.integer(path)
        if number < 0:
            raise self._unreadable(path, f"{number} is negative, which no counter is")
        return number

    def watts(self, path: Path) -> float:
        """A file in microwatts. Raises Unreadable, also for a power that no component has."""
        watts = self.integer(path) / 1e6
        if not 0 <= watts <= MOST_W:
            raise self._unreadable(path, f"{watts:.4g} W is not between 0 and {MOST_W:,} W")
        return watts

    def maybe(self, path: Path) -> str:
        """The content, or "" where the file cannot be read: for files that only describe."""
        try:
            return self.text(path)
        except Unreadable:
            return ""

    def word(self, path: Path) -> str:
        """A name on one line; "" where the file cannot be read or holds none."""
        text = self.maybe(path)
        if len(text) <= WORD and not has_control(text):
            return text
        self._report(path, f"{text[:40]!a} is no name of up to {WORD} characters")
        return ""

    def maybe_count(self, path: Path) -> int | None:
        try:
            return self.count(path)
        except Unreadable:
            return None

    def maybe_watts(self, path: Path) -> float | None:
        try:
            return self.watts(path)
        except Unreadable:
            return None

    def folders(self, path: Path, *, links: bool = True) -> list[Path]:
        """The folders in it, sorted as people would; empty where it cannot be listed."""
        try:
            with os.scandir(path) as entries:
                folders = (each.name for each in entries if each.is_dir(follow_symlinks=links))
                names = list(islice(folders, MOST_FOLDERS + 1))
        except OSError:
            return []
        if len(names) > MOST_FOLDERS:
            self._report(path, f"it has more than {MOST_FOLDERS:,} folders; the others are skipped")
        names = sorted(names[:MOST_FOLDERS], key=lambda name: (len(name), name))
        return [path / name for name in names]

    def path_on_host(self, path: Path) -> str:
        """The path as the host knows it."""
        return f"/{path.relative_to(self.root)}" if path.is_relative_to(self.root) else str(path)

    def _content(self, path: Path) -> bytes:
        """A pipe would block, and a device has no end."""
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise self._unreadable(path, "it is no regular file")
            self._require_inside(path, file.fileno())
            content = file.read(LONGEST_FILE + 1)
        if len(content) > LONGEST_FILE:
            raise self._unreadable(path, f"it has more than {LONGEST_FILE >> 20} MiB")
        return content

    def _require_inside(self, path: Path, descriptor: int) -> None:
        """A link of the host leads to a file of the container where it leads out of the mount."""
        if self._real_root == "/":
            return
        real = os.readlink(f"/proc/self/fd/{descriptor}")
        if not real.startswith(f"{self._real_root}/"):
            raise self._unreadable(path, f"it leads out of {self.root}")

    def _unreadable(self, path: Path, why: str) -> Unreadable:
        return Unreadable(f"{self.path_on_host(path)}: {why}")

    def _report(self, path: Path, why: str) -> None:
        """Once; what changes its name again and again is reported no more than some times."""
        if path not in self._reported and len(self._reported) < MOST_REPORTED:
            self._reported.add(path)
            log.warning("left_out", what="file", which=self.path_on_host(path), why=why)


class Findings:
    """What one or several sources have read so far."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.caps: list[CapRange] = []
        self.missing: list[NotAvailable] = []

    def lacks(self, source: str, why: object) -> None:
        self.missing.append(NotAvailable(source=source, why=str(why)))


def natural(text: str) -> int | None:
    """The number of up to 63 bits that these digits are; None for all other texts."""
    number = int(text) if _NATURAL.fullmatch(text) else LARGEST + 1
    return number if number <= LARGEST else None


def numbered(host: Host, folder: Path, prefix: str) -> Iterator[Path]:
    """Folders such as card0, card1 and card10, without card0-DP-1."""
    for each in host.folders(folder):
        if each.name.startswith(prefix) and natural(each.name[len(prefix) :]) is not None:
            yield each


def _reason(error: OSError) -> str:
    match error:
        case FileNotFoundError():
            return "there is no such file"
        case PermissionError():
            return "permission denied; the reader runs as root"
        case _:
            return os.strerror(error.errno) if error.errno else str(error)
