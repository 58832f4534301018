"""All names of a board as bytes, side by side: a list is found in it, and answered from it, whole.

One by one, five hundred names cost as many walks through memory, each to another place. Side by
side they cost a dozen steps, however many they are. Pure.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from joulie_extender.mixing import Words, mixers
from joulie_projections.arrays import Bools, Ints

Bytes = npt.NDArray[np.uint8]

LONGEST = 128  # bytes of a name; of a cluster with longer ones we look names up one by one
_WORD = 8
_SPARSE = 3  # bits by which there are more slots than names
_QUOTE, _COMMA, _BLANK = b'", '
_BETWEEN = b'","'  # from the end of a name to the start of the next
_HOST, _SCORE = b'{"Host":"', b',"Score":   },'
_HIGHEST = 100
# The last eight bytes of a line, for each score. Right-aligned in three places: JSON allows blanks
# before a number, and numbers of one width can be written into a reply that is otherwise ready.
_TAILS: Words = np.frombuffer(
    b"".join(b'e":%3d},' % score for score in range(_HIGHEST + 1)), np.uint64
)


class Spans(ABC):
    """Where the names stand in a list: `["n1","n2"]`, and not a byte more or less.

    A name is looked up together with the `","` behind it, of which the last one has `"]`: what is
    found in this way also stands where it should.
    """

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def bytes_at(self, at: int) -> bytes:
        """One name. Raises IndexError."""

    @abstractmethod
    def where(self, is_kept: Bools) -> "Spans":
        """The same list with these alone."""

    def told(self, is_in: Bools, value: bytes) -> bytes | None:
        """`"n1":value,"n2":value` of these. None if that is no quicker here than one by one."""
        return None

    @abstractmethod
    def words(self, width: int) -> Words | None:
        """A row of so many bytes for each, filled up with zeros. None if one is cut for sure."""

    def _text(self, more: int) -> bytes:
        """From the first name on, every name with what is behind it, and some bytes to spare."""
        return b"".join((self.raw[2:-1], _BETWEEN[1:], bytes(more)))


class Even(Spans):
    """Names that are all of one length, as they mostly are: nothing is searched for.

    Whether every name ends where it should is seen when it is looked up, and not before.
    """

    def __init__(self, raw: bytes, step: int) -> None:
        super().__init__(raw)
        self._step = step

    @classmethod
    def cut(cls, raw: bytes) -> "Even | None":
        end = raw.find(_BETWEEN, 2)
        step = (end + len(_BETWEEN) if end >= 0 else len(raw) + 1) - 2
        return None if (len(raw) - 1) % step else cls(raw, step)

    def __len__(self) -> int:
        return (len(self.raw) - 1) // self._step

    def bytes_at(self, at: int) -> bytes:
        start = 2 + range(0, len(self.raw) - 1, self._step)[at]
        return self.raw[start : start + self._step - len(_BETWEEN)]

    def where(self, is_kept: Bools) -> "Spans":
        parts = self._parts()[is_kept]
        if not len(parts):
            return NOBODY
        return Even(b'["' + parts.tobytes()[:-2] + b"]", self._step)

    def told(self, is_in: Bools, value: bytes) -> bytes:
        behind = np.frombuffer(b":" + value + b",", np.uint8)
        named = self._step - 1  # with both of its quotation marks
        lines = np.empty((np.count_nonzero(is_in), named + len(behind)), np.uint8)
        lines[:, 0] = _QUOTE
        parts = self._parts()[is_in].view(np.uint8).reshape(-1, self._step)
        lines[:, 1:named] = parts[:, : named - 1]
        lines[:, named:] = behind
        return lines.tobytes()[:-1]

    def _parts(self) -> npt.NDArray[np.void]:
        """Each name with the `","` behind it."""
        return np.frombuffer(self._text(0), _row(self._step))

    def words(self, width: int) -> Words | None:
        if self._step > width:
            return None
        rows = self._parts().astype(_row(width))  # numpy fills up with zeros
        words: Words = rows.view(np.uint64).reshape(len(rows), -1)
        return words


class Uneven(Spans):
    def __init__(self, raw: bytes, starts: Ints, ends: Ints) -> None:
        super().__init__(raw)
        self._starts = starts
        self._ends = ends

    @classmethod
    def cut(cls, raw: bytes) -> "Uneven | None":
        text = np.frombuffer(raw, np.uint8)
        quotes = np.flatnonzero(text == _QUOTE)
        starts, ends = quotes[0::2] + 1, quotes[1::2]
        if len(starts) != len(ends) or ends[-1] != len(raw) - 2:
            return None
        between = ends[:-1]
        is_tight = (starts[1:] - between == len(_BETWEEN)) & (text[between + 1] == _COMMA)
        return cls(raw, starts, ends) if is_tight.all() else None

    def __len__(self) -> int:
        return len(self._starts)

    def longest(self) -> int:
        return int((self._ends - self._starts).max())

    def bytes_at(self, at: int) -> bytes:
        return self.raw[self._starts.item(at) : self._ends.item(at)]

    def where(self, is_kept: Bools) -> "Spans":
        if not is_kept.any():
            return NOBODY
        steps = self._ends - self._starts + len(_BETWEEN)
        text = np.frombuffer(self.raw, np.uint8)[1:]
        raw = b"[" + text[np.repeat(is_kept, steps)][:-1].tobytes() + b"]"
        steps = steps[is_kept]
        ends = np.cumsum(steps) - 1
        return Uneven(raw, ends - steps + len(_BETWEEN), ends)

    def words(self, width: int) -> Words | None:
        lengths = self._ends - self._starts + len(_BETWEEN)
        if int(lengths.max()) > width:
            return None
        text = self._text(width)
        windows = np.ndarray(len(text) - width, _row(width), text, strides=(1,))
        words: Words = windows[self._starts - 2].view(np.uint64).reshape(len(self), -1)
        words &= _masks(width)[lengths]
        return words


_AS_WRITTEN = (Even.cut, Uneven.cut)  # how a list may be read, the quicker way first
NOBODY = Uneven(b"[]", np.zeros(0, np.int64), np.zeros(0, np.int64))


@lru_cache
def _row(width: int) -> np.dtype[np.void]:
    return np.dtype((np.void, width))


@lru_cache(maxsize=LONGEST // _WORD + 2)
def _masks(width: int) -> Words:
    """For each length what leaves so many bytes of a row as they are, and makes the rest zero."""
    kept = np.tri(width + 1, width, -1, np.uint8) * np.uint8(255)
    return kept.view(np.uint64)


class Found(NamedTuple):
    """A list, and where each of its names stands on the board: nobody of them is a stranger."""

    spans: Spans
    rows: Ints
    ordinals: bytes  # four for each, as the log has them


class Roster:
    """The names of a board, for as long as no node comes or goes."""

    def __init__(self, rows: Mapping[str, int]) -> None:
        self.rows = rows
        raw = msgspec.json.encode(list(rows))
        spans = Uneven.cut(raw) if rows else None
        # With an escape in it, a name does not stand there as it is.
        self._is_blind = spans is None or b"\\" in raw or spans.longest() > LONGEST
        if spans is not None and not self._is_blind:
            at = np.fromiter(rows.values(), np.int64, len(rows))
            self._lay_out(spans, at)

    def _lay_out(self, spans: Uneven, at: Ints) -> None:
        self._width = -(-(spans.longest() + len(_BETWEEN)) // _WORD) * _WORD
        # Rows of nobody equal no name, the empty one included.
        shape = (int(at.max()) + 1, self._width // _WORD)
        self._ordinals = np.arange(-1, shape[0] - 1, dtype="<i4")
        self._names: Words = np.full(shape, np.iinfo(np.uint64).max, np.uint64)
        words = spans.words(self._width)
        assert words is not None  # as wide as the longest
        self._names[at] = words
        self._shift = np.uint64(64 - len(spans).bit_length() - _SPARSE)
        self._mixers = mixers(self._names.shape[1])
        self._tags: Words = self._names @ self._mixers
        slots = (self._tags[at] >> self._shift).view(np.int64)
        self._slots: Ints = np.zeros(2 ** (64 - int(self._shift)), np.int64)
        self._slots[slots] = at
        # One in fourteen has lost its slot to another.
        is_out = self._slots[slots] != at
        self._second: Ints = np.zeros_like(self._slots)
        self._second[slots[is_out]] = at[is_out]
        self._lines = _lines(self._names.view(np.uint8))

    def find(self, raw: bytes) -> "Found | None":
        """None if one of them is not there, or cannot be found in this way."""
        if self._is_blind or not (raw.startswith(b'["') and raw.endswith(b'"]')):
            return None  # written in another way, or no list of names at all
        for cut in _AS_WRITTEN:
            spans = cut(raw)
            rows = None if spans is None else self._find(spans)
            if spans is not None and rows is not None:
                return Found(spans, rows, self._ordinals.take(rows).tobytes())
        return None

    def _find(self, spans: Spans) -> Ints | None:
        words = spans.words(self._width)
        if words is None:
            return None
        tags = words @ self._mixers
        slots = (tags >> self._shift).view(np.int64)
        found = self._slots.take(slots)
        (elsewhere,) = (self._tags.take(found) != tags).nonzero()
        found[elsewhere] = self._second[slots[elsewhere]]
        # As one piece each, they are compared in one go.
        if self._names.take(found, axis=0).tobytes() == words.tobytes():
            return found
        return self._mended(found, words, spans)

    def _mended(self, found: Ints, words: Words, spans: Spans) -> Ints | None:
        """One by one: very few share a slot with two others; most of these are strangers."""
        for at in np.flatnonzero((self._names[found] != words).any(axis=1)).tolist():
            row = self.rows.get(spans.bytes_at(at).decode("utf-8", "replace"))
            if row is None or (self._names[row] != words[at]).any():
                return None
            found[at] = row
        return found

    def scored(self, rows: Ints, scores: Ints) -> bytes | None:
        """The reply of prioritize; None if a row is not ours, or stands there twice.

        kube-scheduler would add a second score of a node to the first.
        """
        if self._is_blind or not len(rows) or np.count_nonzero(rows) < len(rows):
            return None
        if np.bincount(rows).max() > 1:
            return None
        lines = self._lines.take(rows, axis=0)
        lines[:, -1] = _TAILS.take(scores)
        lines.view(np.uint8)[-1, -1] = ord("]")
        return b"[" + lines.tobytes()


def _lines(names: Bytes) -> Words:
    """`{"Host":"n1"    ,"Score":   },` for each, all of one width."""
    height, width = names.shape
    whole = -(-(len(_HOST) + width + len(_SCORE)) // _WORD) * _WORD
    lines = np.full((height, whole), _BLANK, np.uint8)
    lines[:, : len(_HOST)] = np.frombuffer(_HOST, np.uint8)
    quoted = lines[:, len(_HOST) : len(_HOST) + width]
    quoted[:] = np.where(names > 0, names, _BLANK)
    # Of the `","` behind a name, its own quotation mark alone.
    ends = (names > 0).sum(axis=1)
    for back in (1, 2):
        quoted[np.arange(height), ends - back] = _BLANK
    lines[:, -len(_SCORE) :] = np.frombuffer(_SCORE, np.uint8)
    return lines.view(np.uint64)
