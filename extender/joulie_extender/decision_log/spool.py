"""A spool of decisions on disk, written before the reply is sent.

A process that is killed loses no decision that it replied with: the next start ships what is left.
A frame is length, checksum, message; a torn last frame belongs to a reply that was never sent.
"""

import fcntl
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from joulie_bus.errors import DataDirectoryError
from joulie_bus.runtime.secret_files import tighten
from joulie_bus.streams.records import Message

_FRAME = struct.Struct("<II")
SEGMENT_BYTES = 4 * 1024 * 1024  # then a new file, so that what is shipped can be deleted
RECENT_BYTES = 4 * 1024 * 1024  # kept in memory, too, until they are shipped
SUFFIX = ".spool"


class Place(NamedTuple):
    segment: Path
    offset: int


class Spool:
    """One directory per replica and process. Appends at the end, reads from the front, deletes on
    `shipped`.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _locked(directory)
        self._directory = directory
        self._left_over = sorted(directory.glob(f"*{SUFFIX}"))
        tighten(*self._left_over)
        self._number = int(self._left_over[-1].stem) + 1 if self._left_over else 1
        self._file: BinaryIO = self._open()
        self._offset = 0
        self._front = Place((self._left_over or [self._path])[0], 0)
        self._recent = _Recent(self._end())

    def append(self, message: Message) -> None:
        """Hands the frame to the kernel before it returns, so that a kill of this process cannot
        lose it.

        Raises OSError, and leaves no torn frame behind, when the disk is full.
        """
        body = msgspec.msgpack.encode(message)
        frame = _FRAME.pack(len(body), zlib.crc32(body)) + body
        try:
            if self._file.write(frame) != len(frame):
                raise OSError(f"the disk under {self._directory} is full")
        except OSError:
            self._file.truncate(self._offset)
            self._file.seek(self._offset)
            raise
        self._offset += len(frame)
        if self._offset > SEGMENT_BYTES:
            self._file.close()
            self._number += 1
            self._file, self._offset = self._open(), 0
        self._recent.append(message, self._end())

    def unshipped(self, limit: int) -> tuple[list[Message], Place]:
        """The next messages, and the place to pass to `shipped` once the broker has them."""
        if self._front == self._recent.start:
            return self._recent.first(limit)
        messages: list[Message] = []
        place = self._front
        while len(messages) < limit:
            with open(place.segment, "rb") as file:
                file.seek(place.offset)
                for message, end in _frames(file, place.offset):
                    messages.append(message)
                    place = Place(place.segment, end)
                    if len(messages) == limit:
                        break
            following = self._after(place.segment)
            if len(messages) == limit or following is None:
                break
            place = Place(following, 0)
        return messages, place

    def shipped(self, place: Place) -> None:
        """Deletes everything before `place`: it is stored at the broker."""
        if place.segment != self._front.segment:
            for segment in self._segments():
                if segment < place.segment:
                    segment.unlink()
        self._front = place
        self._recent.forget(place)
        if place == self._end() and self._offset:
            self._file.truncate(0)
            self._file.seek(0)
            self._offset = 0
            self._front = self._end()
            self._recent = _Recent(self._front)

    @property
    def is_empty(self) -> bool:
        return self._front == self._end()

    @property
    def remembered(self) -> int:
        """Bytes of messages that are also kept in memory."""
        return self._recent.size

    def _end(self) -> Place:
        return Place(self._path, self._offset)

    def close(self) -> None:
        """Idempotent."""
        if not self._file.closed:
            self._file.close()
            os.close(self._lock)

    def _open(self) -> BinaryIO:
        """Creates a segment; `self._path` is its path."""
        self._path = self._directory / f"{self._number:012d}{SUFFIX}"
        return os.fdopen(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600), "r+b", buffering=0)

    def _segments(self) -> list[Path]:
        return sorted(self._directory.glob(f"*{SUFFIX}"))

    def _after(self, segment: Path) -> Path | None:
        return next((other for other in self._segments() if other > segment), None)


def _locked(directory: Path) -> int:
    """Locks the directory for this process until it ends or closes the returned descriptor."""
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(held)
        raise DataDirectoryError(
            f"The spool {directory} cannot be locked: {error.strerror}. Most likely another "
            "extender uses it, and each would delete decisions of the other. Nothing was started. "
            "Stop the other one, or give each replica a name of its own by EXTENDER_REPLICA."
        ) from error
    return held


class _Recent:
    """The newest messages in memory, so that they need not be read from disk to be shipped."""

    def __init__(self, start: Place) -> None:
        self.start = start
        self.size = 0
        self._messages: deque[tuple[Message, Place]] = deque()

    def append(self, message: Message, end: Place) -> None:
        self._messages.append((message, end))
        self.size += len(message.data)
        while self.size > RECENT_BYTES:
            self._drop()

    def first(self, limit: int) -> tuple[list[Message], Place]:
        found = list(islice(self._messages, limit))
        return [message for message, _ in found], found[-1][1] if found else self.start

    def forget(self, place: Place) -> None:
        while self._messages and self.start < place:
            self._drop()

    def _drop(self) -> None:
        message, self.start = self._messages.popleft()
        self.size -= len(message.data)


def _frames(file: BinaryIO, offset: int) -> Iterator[tuple[Message, int]]:
    """Complete frames only; a torn frame was never replied to."""
    while len(head := file.read(_FRAME.size)) == _FRAME.size:
        length, checksum = _FRAME.unpack(head)
        body = file.read(length)
        if len(body) != length or zlib.crc32(body) != checksum:
            return
        offset += _FRAME.size + length
        yield msgspec.msgpack.decode(body, type=Message), offset
