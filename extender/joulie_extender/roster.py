"""All names of a board as bytes, side by side: a list is found in it, and answered from it, whole.

One by one, five hundred names cost as many walks through memory, each to another place. Side by
side they cost a dozen steps, however many they are. Pure.
"""

from collections.abc import Mapping
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from joulie_extender.mixing import Words, mixers
from joulie_projections.board import Ints

Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

LONGEST = 128  # bytes of a name; of a cluster with longer ones we look names up one by one
_WORD = 8
_SPARSE = 3  # bits by which there are more slots than names
_QUOTE, _COMMA, _BLANK = b'", '
_END = b'",'
_HOST, _SCORE = b'{"Host":"', b',"Score":   },'
_PLACES = slice(-5, -2)  # of the three digits in `_SCORE`
_BETWEEN = 3  # bytes from the end of a name to the start of the next: `","`
_HIGHEST = 100
# Every score right-aligned in three places: JSON allows blanks before a number, and numbers of one
# width can be written into a reply that is otherwise ready.
_DIGITS: Bytes = np.frombuffer(
    b"".join(b"%3d" % score for score in range(_HIGHEST + 1)), np.uint8
).reshape(-1, 3)


class Spans:
    """Where the names stand in a list: `["n1","n2"]`, and not a byte more or less."""

    def __init__(self, raw: bytes, starts: Ints, ends: Ints) -> None:
        self.raw = raw
        self._starts = starts
        self._ends = ends
        self._grid: Bytes | None = None  # the names, if all are of one length

    @classmethod
    def of(cls, raw: bytes) -> "Spans | None":
        """None for a list that is written in another way, or is none."""
        if not (raw.startswith(b'["') and raw.endswith(b'"]')):
            return None
        return cls._even(raw) or cls._uneven(raw)

    @classmethod
    def _even(cls, raw: bytes) -> "Spans | None":
        """Names that are all of one length, as they mostly are: nothing is searched for."""
        step = raw.find(_END, 2) + 1 or len(raw) - 1
        count, rest = divmod(len(raw) - 1, step)
        if rest:
            return None
        grid = np.frombuffer(raw, np.uint8)[1:].reshape(count, step)
        frame = grid[:, (0, -2, -1)]
        frame[-1, -1] = _COMMA  # of the last it is the bracket
        inside = grid[:, 1:-2]
        if (frame != (_QUOTE, _QUOTE, _COMMA)).any() or (inside == _QUOTE).any():
            return None
        starts = np.arange(2, len(raw), step)
        found = cls(raw, starts, starts + (step - _BETWEEN))
        found._grid = inside
        return found

    @classmethod
    def _uneven(cls, raw: bytes) -> "Spans | None":
        text = np.frombuffer(raw, np.uint8)
        quotes = np.flatnonzero(text == _QUOTE)
        starts, ends = quotes[0::2] + 1, quotes[1::2]
        if len(starts) != len(ends) or ends[-1] != len(raw) - 2:
            return None
        between = ends[:-1]
        is_tight = (starts[1:] - between == _BETWEEN) & (text[between + 1] == _COMMA)
        return cls(raw, starts, ends) if is_tight.all() else None

    def __len__(self) -> int:
        return len(self._starts)

    def longest(self) -> int:
        return int((self._ends - self._starts).max())

    def bytes_at(self, at: int) -> bytes:
        return self.raw[self._starts.item(at) : self._ends.item(at)]

    def where(self, is_kept: Bools) -> "Spans":
        """The same list with these alone."""
        if not is_kept.any():
            nobody = np.zeros(0, np.int64)
            return Spans(b"[]", nobody, nobody)
        steps = self._ends - self._starts + _BETWEEN
        text = np.frombuffer(self.raw, np.uint8)[1:]
        raw = b"[" + text[np.repeat(is_kept, steps)][:-1].tobytes() + b"]"
        steps = steps[is_kept]
        ends = np.cumsum(steps) - 1
        return Spans(raw, ends - steps + _BETWEEN, ends)

    def words(self, width: int) -> Words:
        """A row of so many bytes for each, filled up with zeros; those that are longer are cut."""
        grid = self._grid
        if grid is not None and grid.shape[1] <= width:
            table = np.zeros((len(grid), width), np.uint8)
            table[:, : grid.shape[1]] = grid
            return table.view(np.uint64)
        padded = self.raw + bytes(width)
        windows = np.ndarray(len(self.raw), np.dtype((np.void, width)), padded, strides=(1,))
        words: Words = windows[self._starts].view(np.uint64).reshape(len(self), -1)
        lengths = np.minimum(self._ends - self._starts, width)
        masks = _masks(width)
        first = int(lengths[0])
        words &= masks[first] if (lengths == first).all() else masks[lengths]
        return words


@lru_cache(maxsize=LONGEST // _WORD + 1)
def _masks(width: int) -> Words:
    """For each length what leaves so many bytes of a row as they are, and makes the rest zero."""
    kept = np.tri(width + 1, width, -1, np.uint8) * np.uint8(255)
    return kept.view(np.uint64)


class Roster:
    """The names of a board, for as long as no node comes or goes."""

    def __init__(self, rows: Mapping[str, int]) -> None:
        self.rows = rows
        raw = msgspec.json.encode(list(rows))
        spans = Spans.of(raw)
        # With an escape in it, a name does not stand there as it is.
        self._is_blind = spans is None or b"\\" in raw or spans.longest() > LONGEST
        if spans is not None and not self._is_blind:
            at = np.fromiter(rows.values(), np.int64, len(rows))
            self._lay_out(spans, at)

    def _lay_out(self, spans: Spans, at: Ints) -> None:
        # One byte more than the longest: two names that differ only behind it do not look alike.
        self._width = (spans.longest() // _WORD + 1) * _WORD
        # Rows of nobody equal no name, the empty one included.
        shape = (int(at.max()) + 1, self._width // _WORD)
        self._names: Words = np.full(shape, np.iinfo(np.uint64).max, np.uint64)
        self._names[at] = spans.words(self._width)
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

    def find(self, spans: Spans) -> Ints | None:
        """Their rows; None if one of them is not there, or cannot be found in this way."""
        if self._is_blind:
            return None
        words = spans.words(self._width)
        tags = words @ self._mixers
        slots = (tags >> self._shift).view(np.int64)
        found = self._slots[slots]
        elsewhere = np.flatnonzero(self._tags[found] != tags)
        found[elsewhere] = self._second[slots[elsewhere]]
        same = self._names[found] == words
        return found if same.all() else self._mended(found, same.all(axis=1), spans)

    def _mended(self, found: Ints, is_it: Bools, spans: Spans) -> Ints | None:
        """One by one: very few share a slot with two others; most of these are strangers."""
        for at in np.flatnonzero(~is_it).tolist():
            row = self.rows.get(spans.bytes_at(at).decode("utf-8", "replace"))
            if row is None:
                return None
            found[at] = row
        return found

    def scored(self, rows: Ints, scores: Ints) -> bytes | None:
        """The reply of prioritize; None if a row is not ours, or stands there twice.

        kube-scheduler would add a second score of a node to the first.
        """
        if self._is_blind or not len(rows) or not rows.all():
            return None
        if np.bincount(rows).max() > 1:
            return None
        # As one piece each, a line is copied in one go.
        lines = self._lines[rows].view(np.uint8).reshape(len(rows), -1)
        lines[:, _PLACES] = _DIGITS[scores]
        lines[-1, -1] = ord("]")
        return b"[" + lines.tobytes()


def _lines(names: Bytes) -> npt.NDArray[np.void]:
    """`{"Host":"n1"  ,"Score":   },` for each, all of one width."""
    height, width = names.shape
    lines = np.full((height, len(_HOST) + width + 1 + len(_SCORE)), _BLANK, np.uint8)
    lines[:, : len(_HOST)] = np.frombuffer(_HOST, np.uint8)
    quoted = lines[:, len(_HOST) : -len(_SCORE)]
    quoted[:, :width] = np.where(names > 0, names, _BLANK)
    quoted[np.arange(height), (names > 0).sum(axis=1)] = _QUOTE
    lines[:, -len(_SCORE) :] = np.frombuffer(_SCORE, np.uint8)
    return lines.view(np.dtype((np.void, lines.shape[1]))).reshape(height)
