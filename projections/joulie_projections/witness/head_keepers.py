"""Places outside of the broker and the database that keep signed heads.

A keeper appends and never replaces: of each entry it keeps the head that came first.
"""

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from joulie_bus.errors import BucketFailed, HeadsNotKept
from joulie_bus.runtime.own_files import open_regular, regular
from joulie_bus.s3.bucket import Bucket
from joulie_projections.chain.head import Head, decode, encode

_LAST_LINES = 4096
_READERS = 16
_MOST = 10**16 - 1  # entries; names count down, so that the newest head is listed first
_NAME = re.compile(r"[0-9]{16}-entry-([0-9]{1,16})\.json")


class HeadKeeper(Protocol):
    is_bounded: bool  # older heads make room for newer ones

    def newest(self) -> int:
        """The entry of the newest head that is kept; 0 if there is none."""
        ...

    def append(self, heads: Sequence[Head]) -> None:
        """Keeps heads behind the newest one. Raises a JoulieError or an OSError."""
        ...

    def kept(self) -> list[bytes]:
        """What is kept, in the order of entries. It may be no heads: others may write there."""
        ...


class FileKeeper:
    """One head on a line of a file, in JSON. The file is on storage of others: a link could lead to
    the database, and a device never ends.
    """

    is_bounded = False

    def __init__(self, file: Path) -> None:
        self._file = file

    def newest(self) -> int:
        try:
            with open_regular(self._file) as opened:
                opened.seek(max(0, opened.seek(0, os.SEEK_END) - _LAST_LINES))
                lines = opened.read(_LAST_LINES).split(b"\n")[:-1]  # the last one is unfinished
        except FileNotFoundError:
            return 0
        return _position(str(self._file), lines[-1]) if lines else 0

    def append(self, heads: Sequence[Head]) -> None:
        with open(self._file, "r+b", opener=_created) as opened:
            _remove_unfinished(opened)
            opened.write(b"".join(encode(head) + b"\n" for head in heads))
            opened.flush()
            os.fsync(opened.fileno())

    def kept(self) -> list[bytes]:
        with open_regular(self._file) as opened:
            return opened.read().splitlines()


def _created(path: str, flags: int) -> int:
    return regular(path, flags | os.O_CREAT)


def _remove_unfinished(opened: BinaryIO) -> None:
    """Of a line that a full disk or a power failure cut off; leaves the end of the file."""
    size = opened.seek(0, os.SEEK_END)
    opened.seek(max(0, size - _LAST_LINES))
    whole = opened.read().rfind(b"\n") + 1
    opened.truncate(opened.seek(max(0, size - _LAST_LINES) + whole))


class BucketKeeper:
    """One object for each head, written only if there is none of its name."""

    is_bounded = False

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._newest: int | None = None
        self._is_once = False  # the server has refused to write an object again

    def newest(self) -> int:
        if self._newest is None:
            found = (_NAME.fullmatch(name) for name in self._bucket.names())
            self._newest = next((int(match[1]) for match in found if match), 0)
        return self._newest

    def append(self, heads: Sequence[Head]) -> None:
        for head in heads:
            name, content = _name(head.pos), encode(head)
            if not self._bucket.put_new(name, content):
                self._require_same(name, content)
            elif not self._is_once and self._bucket.put_new(name, content):
                why = "the server ignores If-None-Match, so that objects can be overwritten"
                raise BucketFailed(str(self._bucket.place), why)
            self._newest, self._is_once = head.pos, True

    def kept(self) -> list[bytes]:
        names = sorted(self._bucket.names(), reverse=True)
        with ThreadPoolExecutor(_READERS) as pool:
            return [content for content in pool.map(self._bucket.get, names) if content is not None]

    def _require_same(self, name: str, content: bytes) -> None:
        if self._bucket.get(name) != content:
            raise HeadsNotKept(f"{self._bucket.place}{name}", "it holds another head of this entry")


def _name(pos: int) -> str:
    return f"{_MOST - pos:016d}-entry-{pos}.json"


def _position(place: str, line: bytes) -> int:
    try:
        return decode(line).pos
    except msgspec.DecodeError as error:
        raise HeadsNotKept(place, f"it holds no head ({error})") from error
