"""Readings that could not be published yet, oldest first: bounded, and on disk as well.

Each is a line of the file. A process that is killed leaves at most one incomplete line, which is
left out when the next one starts; what was published of it already is late twice, and counts once.
"""

import contextlib
import time
from collections import deque
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import msgspec

from joulie_bus.events import TelemetrySampled
from joulie_bus.runtime.logging import get_logger
from joulie_projections.store.monotonic import boot_id

MOST_BYTES = 1 << 20  # about 3,000 readings of a node without cards: eight hours and more
log = get_logger("agent")


class When(NamedTuple):
    """A time since this machine started, and which start that was."""

    boot: str
    at_ms: int

    @classmethod
    def now(cls) -> "When":
        """The clock also runs while the machine sleeps, where the system has such a clock."""
        clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return cls(boot_id(), time.clock_gettime_ns(clock) // 1_000_000)


class Kept(msgspec.Struct, frozen=True):
    """A reading, and when it was made."""

    boot: str
    at_ms: int
    reading: TelemetrySampled


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Kept).decode


class Backlog:
    """Without a file the readings are in memory only."""

    def __init__(self, file: Path | None, boot: str, most_bytes: int = MOST_BYTES) -> None:
        self._file = file
        self._most_bytes = most_bytes
        self._lines: deque[bytes] = deque()
        self._size = self._on_disk = 0
        self.dropped = 0  # the oldest ones, for lack of room
        self.removed = 0  # since the start, for either reason
        self._failed = False
        if file is not None:
            self._load(file, boot)

    def __len__(self) -> int:
        return len(self._lines)

    def put(self, made: When, reading: TelemetrySampled) -> None:
        line = _encode(Kept(*made, reading)) + b"\n"
        self._lines.append(line)
        self._size += len(line)
        while self._size > self._most_bytes:
            self._remove_oldest()
            self.dropped += 1
        self._write(line)

    def oldest(self, number: int) -> list[Kept]:
        return [_decode(self._lines[at]) for at in range(min(number, len(self._lines)))]

    def drop(self, number: int) -> None:
        """Drops the oldest ones, which are published."""
        for _ in range(min(number, len(self._lines))):
            self._remove_oldest()
        if not self._lines:
            self.dropped = 0
            self._rewrite()

    def _remove_oldest(self) -> None:
        self._size -= len(self._lines.popleft())
        self.removed += 1

    def _write(self, line: bytes) -> None:
        self._on_disk += len(line)
        if self._on_disk > 2 * self._most_bytes:
            self._rewrite()
            return
        if self._file is not None:
            with self._reported(), self._file.open("ab") as file:
                file.write(line)

    def _rewrite(self) -> None:
        """A new file replaces the old one, so that a reader never sees half of one."""
        self._on_disk = self._size
        if self._file is None:
            return
        with self._reported():
            fresh = self._file.with_suffix(".new")
            fresh.write_bytes(b"".join(self._lines))
            fresh.replace(self._file)

    @contextlib.contextmanager
    def _reported(self) -> Generator[None]:
        try:
            yield
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.error("not_kept", file=str(self._file), why=str(error), meanwhile="in memory")
            self._failed = True

    def _load(self, file: Path, boot: str) -> None:
        """Of this start of the machine: how old others are is not known."""
        try:
            lines = file.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return
        except OSError as error:
            log.error("kept_unreadable", file=str(file), why=str(error), next="it begins anew")
            return
        good = [line for line in lines if _is_of(boot, line)]
        self._lines.extend(good)
        self._size = sum(map(len, good))
        if good:
            log.info("kept_readings", count=len(good), next="they are published as late ones")
        self._rewrite()


def _is_of(boot: str, line: bytes) -> bool:
    try:
        return line.endswith(b"\n") and _decode(line).boot == boot
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
