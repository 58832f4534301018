"""A spool of decisions on disk, written before the reply is sent.

A process that is killed loses no decision that it replied with: the next start ships what is left.
What cannot be read is skipped, counted and reported, and never stops what is behind it.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from joulie_bus.errors import DataDirectoryError
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.secret_files import tighten
from joulie_bus.streams.records import Message
from joulie_extender.decision_log.frames import framed, parts, records_between

SEGMENT_BYTES = 4 * 1024 * 1024  # then a new file, so that what is shipped can be deleted
RECENT_BYTES = 4 * 1024 * 1024  # kept in memory, too, until they are shipped
SUFFIX = ".spool"
REST = ".rest"
SET_ASIDE = ".unreadable"  # appended to the name of a segment that cannot be opened
# Errors of this process or machine that may end; all others are about the segment.
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN, errno.ESTALE)
log = get_logger("extender")


class Place(NamedTuple):
    segment: Path
    offset: int


class Loss(NamedTuple):
    """Decisions that were spooled and cannot be read any more."""

    records: int  # at least
    why: str


class Unshipped(NamedTuple):
    messages: list[Message]
    place: Place  # to pass to `shipped` once the broker has them
    losses: list[Loss]


class Spool:
    """One directory per replica and process. Appends at the end, reads from the front, deletes on
    `shipped`.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock: int | None = _locked(directory)
        self._directory = directory
        self._left_over = self._segments()
        tighten(*self._left_over)
        self._number = int(self._left_over[-1].stem) + 1 if self._left_over else 1
        self._path, self._file = self._create(self._number)
        self._offset = 0
        self._grows = False  # whether the last attempt to begin a new segment failed
        self._front = Place((self._left_over or [self._path])[0], 0)
        self._recent = _Recent(self._end())
        self._waiting = sum(1 for _ in self.left_over())

    def left_over(self) -> Iterator[Message]:
        """What earlier lives left, as of the start."""
        for segment in self._left_over:
            yield from _messages_in(segment)

    def append(self, message: Message) -> None:
        """Hands the record to the kernel before it returns, so that a kill of this process cannot
        lose it.

        Raises OSError when the disk is full; the next record overwrites what was written of it.
        """
        record = framed(message)
        try:
            if os.pwrite(self._file, record, self._offset) != len(record):
                raise OSError(errno.ENOSPC, f"the disk under {self._directory} is full")
        except OSError:
            with contextlib.suppress(OSError):
                os.truncate(self._file, self._offset)
            raise
        self._offset += len(record)
        self._waiting += 1
        if self._offset > SEGMENT_BYTES:
            self._begin_segment()
        self._recent.append(message, self._end())

    def _begin_segment(self) -> None:
        """If no new file can be created, the old one grows; the next record tries again."""
        try:
            path, file = self._create(self._number + 1)
        except OSError as error:
            if not self._grows:
                why = error.strerror or str(error)
                log.warning("spool_grows", file=str(self._path), why=why)
            self._grows = True
            return
        os.close(self._file)
        self._number += 1
        self._path, self._file, self._offset, self._grows = path, file, 0, False

    def unshipped(self, limit: int) -> Unshipped:
        """The next messages. Raises OSError if reading may succeed later."""
        if self._front == self._recent.start:
            return self._recent.first(limit)
        found = Unshipped([], self._front, [])
        while len(found.messages) < limit:
            found = self._read_on(found, limit)
            following = self._after(found.place.segment)
            if len(found.messages) == limit or following is None:
                break
            found = found._replace(place=Place(following, 0))
        return found

    def _read_on(self, found: Unshipped, limit: int) -> Unshipped:
        """The messages of one segment, appended to those found before."""
        messages, (segment, end), losses = found
        try:
            data = self._content(segment)
        except OSError as error:
            return found._replace(losses=[*losses, self._set_aside(segment, error)])
        known, damage = None, 0
        for message, following in parts(data, end):
            if message is None:
                damage = following - end
            else:
                if damage:
                    losses.append(_loss(segment, damage, records_between(known, message)))
                    damage = 0
                messages.append(message)
                known = message
            end = following
            if len(messages) == limit:
                break
        if damage:
            losses.append(_loss(segment, damage, 1))
        return Unshipped(messages, Place(segment, end), losses)

    def _content(self, segment: Path) -> bytes:
        return _content(segment, self._offset if segment == self._path else None)

    def _set_aside(self, segment: Path, error: OSError) -> Loss:
        """Leaves the segment for a person, under a name that is not read again."""
        if error.errno in _PASSING:
            raise error
        with contextlib.suppress(OSError):
            segment.rename(segment.with_name(segment.name + SET_ASIDE))
        return Loss(1, f"{segment} cannot be read: {error.strerror or error}")

    def shipped(self, found: Unshipped) -> None:
        """Deletes the messages, and everything before them: they are stored at the broker."""
        place = found.place
        self._waiting = max(0, self._waiting - len(found.messages))
        if place.segment != self._front.segment:
            for segment in self._segments():
                if segment < place.segment:
                    with contextlib.suppress(OSError):  # the next start ships it again
                        segment.unlink()
        self._front = place
        self._recent.forget(place)
        if self.is_empty:
            self._waiting = 0  # a record that was counted at the start may have rotted since
        if place == self._end() and self._offset:
            with contextlib.suppress(OSError):
                os.truncate(self._file, 0)
                self._offset = 0
                self._front = self._end()
                self._recent = _Recent(self._front)

    @property
    def waiting(self) -> int:
        """The number of messages that the broker does not have."""
        return self._waiting

    def delete_shipped(self) -> None:
        """Before a clean end: deletes what was shipped of the first segment, too, so that the next
        life does not ship it again, and `waiting_in` counts what waits.
        """
        segment, offset = self._front
        if not offset:
            return
        with contextlib.suppress(OSError):  # the next life ships it again
            if segment == self._path:
                self._begin_segment()
            if segment != self._path:
                rest = segment.with_suffix(REST)
                rest.write_bytes(_content(segment)[offset:])
                rest.chmod(0o600)
                rest.replace(segment)
                self._front = Place(segment, 0)
                self._recent = _Recent(self._end())

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
        if self._lock is not None:
            os.close(self._file)
            os.close(self._lock)
            self._lock = None

    def _create(self, number: int) -> tuple[Path, int]:
        path = self._directory / f"{number:012d}{SUFFIX}"
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        return path, os.open(path, flags, 0o600)

    def _segments(self) -> list[Path]:
        found = self._directory.glob(f"*{SUFFIX}")
        return sorted(path for path in found if path.stem.isdecimal())

    def _after(self, segment: Path) -> Path | None:
        return next((other for other in self._segments() if other > segment), None)


def waiting_in(directory: Path) -> int:
    """The number of messages in the spool of a replica that does not run: those that wait, and
    after an end that was no clean one some that the broker has already."""
    return sum(1 for segment in directory.glob(f"*{SUFFIX}") for _ in _messages_in(segment))


def _messages_in(segment: Path) -> Iterator[Message]:
    try:
        content = _content(segment)
    except OSError:
        return  # the reason is reported when it is shipped
    for message, _ in parts(content):
        if message is not None:
            yield message


def _content(segment: Path, size: int | None = None) -> bytes:
    """Follows no link and waits for no pipe: only the extender writes here."""
    file = os.open(segment, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return opened.read(found.st_size if size is None else size)


def _loss(segment: Path, size: int, records: int) -> Loss:
    return Loss(records, f"{segment} is damaged: {size} bytes are no decision")


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

    def first(self, limit: int) -> Unshipped:
        found = list(islice(self._messages, limit))
        place = found[-1][1] if found else self.start
        return Unshipped([message for message, _ in found], place, [])

    def forget(self, place: Place) -> None:
        while self._messages and self.start < place:
            self._drop()

    def _drop(self) -> None:
        message, self.start = self._messages.popleft()
        self.size -= len(message.data)
