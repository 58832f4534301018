"""Files of the host, which a container may have mounted below another root."""

import os
from collections.abc import Iterator
from pathlib import Path

from joulie_agent.report import CapRange, NotAvailable, Reading

LONGEST_FILE = 1 << 20


class Unreadable(Exception):
    """A file of the host that is absent, refused or has other content than its kind has."""


class Host:
    """The host below `root`; a path is relative to it, such as `sys/class/powercap`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def path(self, *parts: str) -> Path:
        return self.root.joinpath(*parts)

    def text(self, path: Path) -> str:
        """The content without the line end. Raises Unreadable."""
        try:
            with path.open("rb") as file:
                return file.read(LONGEST_FILE).decode("utf-8", "replace").strip("\n\0 ")
        except OSError as error:
            raise Unreadable(f"{self.path_on_host(path)}: {_reason(error)}") from error

    def integer(self, path: Path) -> int:
        """Raises Unreadable, also for content that is no integer."""
        text = self.text(path)
        try:
            return int(text)
        except ValueError as error:
            raise Unreadable(f"{self.path_on_host(path)}: {text[:40]!r} is not a number") from error

    def maybe(self, path: Path) -> str:
        """The content, or "" where the file cannot be read: for files that only describe."""
        try:
            return self.text(path)
        except Unreadable:
            return ""

    def maybe_integer(self, path: Path) -> int | None:
        try:
            return self.integer(path)
        except Unreadable:
            return None

    def folders(self, path: Path) -> list[Path]:
        """The folders in it, sorted as people would; empty where it cannot be listed."""
        try:
            found = [each for each in path.iterdir() if each.is_dir()]
        except OSError:
            return []
        return sorted(found, key=lambda each: (len(each.name), each.name))

    def path_on_host(self, path: Path) -> str:
        """The path as the host knows it."""
        return f"/{path.relative_to(self.root)}" if path.is_relative_to(self.root) else str(path)


class Findings:
    """What one or several sources have read so far."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.caps: list[CapRange] = []
        self.missing: list[NotAvailable] = []

    def lacks(self, source: str, why: object) -> None:
        self.missing.append(NotAvailable(source=source, why=str(why)))


def numbered(host: Host, folder: Path, prefix: str) -> Iterator[Path]:
    """Folders such as card0, card1 and card10, without card0-DP-1."""
    for each in host.folders(folder):
        if each.name.startswith(prefix) and each.name[len(prefix) :].isdigit():
            yield each


def _reason(error: OSError) -> str:
    match error:
        case FileNotFoundError():
            return "there is no such file"
        case PermissionError():
            return "permission denied; the reader runs as root"
        case _:
            return os.strerror(error.errno) if error.errno else str(error)
