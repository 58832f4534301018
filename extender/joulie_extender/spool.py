"""Where decisions wait before they are shipped: files, written before the reply goes out.

A process that is killed loses nothing that it answered: the next life ships what the last one left.
Frames are length, checksum, message; a torn last frame is the one whose reply was never sent.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from joulie_bus.records import Message

_FRAME = struct.Struct("<II")
SEGMENT_BYTES = 4 * 1024 * 1024  # then a new file, so that what is shipped can be deleted
SUFFIX = ".spool"


class Place(NamedTuple):
    segment: Path
    offset: int


class Spool:
    """One directory per replica. Appends at the end, reads from the front, forgets on `shipped`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._left_over = sorted(directory.glob(f"*{SUFFIX}"))
        self._number = int(self._left_over[-1].stem) + 1 if self._left_over else 1
        self._file: BinaryIO = self._open()
        self._front = Place((self._left_over or [self._path()])[0], 0)

    def append(self, message: Message) -> None:
        """In the kernel's hands when this returns: a kill of this process cannot take it back.

        Raises OSError, and leaves no torn frame behind, when the disk takes no more.
        """
        body = msgspec.msgpack.encode(message)
        frame = _FRAME.pack(len(body), zlib.crc32(body)) + body
        start = self._file.tell()
        try:
            if self._file.write(frame) != len(frame):
                raise OSError(f"the disk under {self._directory} is full")
        except OSError:
            self._file.truncate(start)
            self._file.seek(start)
            raise
        if self._file.tell() > SEGMENT_BYTES:
            self._file.close()
            self._number += 1
            self._file = self._open()

    def unshipped(self, limit: int) -> tuple[list[Message], Place]:
        """The next messages, and the place to hand to `shipped` once the broker has them."""
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
        """Everything before `place` is stored elsewhere."""
        for segment in self._segments():
            if segment < place.segment:
                segment.unlink()
        self._front = place
        if place.segment == self._path() and place.offset == self._file.tell() > 0:
            self._file.truncate(0)
            self._file.seek(0)
            self._front = Place(place.segment, 0)

    @property
    def is_empty(self) -> bool:
        return self._front == Place(self._path(), self._file.tell())

    def close(self) -> None:
        self._file.close()

    def _open(self) -> BinaryIO:
        return os.fdopen(os.open(self._path(), os.O_CREAT | os.O_RDWR, 0o600), "r+b", buffering=0)

    def _path(self) -> Path:
        return self._directory / f"{self._number:012d}{SUFFIX}"

    def _segments(self) -> list[Path]:
        return sorted(self._directory.glob(f"*{SUFFIX}"))

    def _after(self, segment: Path) -> Path | None:
        return next((other for other in self._segments() if other > segment), None)


def _frames(file: BinaryIO, offset: int) -> Iterator[tuple[Message, int]]:
    """Whole frames only; what is torn was never answered and is left out."""
    while len(head := file.read(_FRAME.size)) == _FRAME.size:
        length, checksum = _FRAME.unpack(head)
        body = file.read(length)
        if len(body) != length or zlib.crc32(body) != checksum:
            return
        offset += _FRAME.size + length
        yield msgspec.msgpack.decode(body, type=Message), offset
