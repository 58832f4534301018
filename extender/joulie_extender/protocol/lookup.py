"""Finds the rows of a whole list of names in a few vectorized steps.

The number of steps does not depend on the number of names. Every match is compared with the
requested name, byte for byte.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from joulie_extender.protocol.mixing import ODD, Words, mixers
from joulie_extender.protocol.spans import EqualLengthSpans, Spans, row_of
from joulie_projections.twin.arrays import Bools, Ints

Bytes = npt.NDArray[np.uint8]
Names = TypeVar("Names", npt.NDArray[np.void], Words)
WORD = 8
_SPARSE = 3  # bits by which there are more slots than names
_ODD = np.uint64(ODD)
_WORD_TYPE = np.dtype("<u8")
_WINDOWS_TRIED = 8  # places for a window


class Slots:
    """A hash table from tags to rows: each row is in its first slot, or in a second table on
    collision.
    """

    def __init__(self, tags: Words, rows: Ints) -> None:
        """`tags` has one tag for each row; only these rows are entered."""
        self._tags = tags
        self._shift = np.uint64(64 - len(rows).bit_length() - _SPARSE)
        slots = (tags[rows] >> self._shift).view(np.int64)
        self._first: Ints = np.zeros(2 ** (64 - int(self._shift)), np.int64)
        self._first[slots] = rows
        is_out = self._first[slots] != rows  # about one in fourteen
        self._second: Ints = np.zeros_like(self._first)
        self._second[slots[is_out]] = rows[is_out]

    def find(self, tags: Words) -> Ints:
        """The row of each tag; any row for a tag that is not in the table."""
        slots = (tags >> self._shift).view(np.int64)
        found: Ints = self._first.take(slots)
        (elsewhere,) = (self._tags.take(found) != tags).nonzero()
        found[elsewhere] = self._second[slots[elsewhere]]
        return found


class Lookup(ABC):
    """The node names of one set of twin columns, each followed by `","`.

    Rows without a node repeat the name of the first row that has one: a lookup of that name finds
    its own row, and no other name equals it.
    """

    def __init__(self, rows: Mapping[str, int], slots: Slots) -> None:
        self._rows = rows
        self._slots = slots

    @abstractmethod
    def find(self, spans: Spans) -> Ints | None:
        """The rows, or None if a name is not found."""

    def _corrected(self, found: Ints, is_wrong: Bools, spans: Spans) -> Ints | None:
        """Looks up names whose slot was taken twice; most of them are unknown nodes."""
        for at in np.flatnonzero(is_wrong).tolist():
            row = self._rows.get(spans.bytes_at(at).decode("utf-8", "replace"))
            if row is None:
                return None
            found[at] = row
        return found


class EqualLengthLookup(Lookup):
    """Names of one length that differ in one window of eight bytes, which serves as their tag."""

    def __init__(
        self, rows: Mapping[str, int], spans: EqualLengthSpans, at: Ints, window: int
    ) -> None:
        self._step = spans.step
        self._window = window
        parts = np.frombuffer(spans.text(), row_of(self._step))
        self._names = _in_rows(parts, at)
        seen = _windows_of(self._names.tobytes(), self._step, window)
        super().__init__(rows, Slots(seen * _ODD, at))

    @classmethod
    def of(
        cls, rows: Mapping[str, int], spans: EqualLengthSpans, at: Ints
    ) -> "EqualLengthLookup | None":
        text, step = spans.text(), spans.step
        for window in _window_offsets(text, step):
            if len(np.unique(_windows_of(text, step, window))) == len(spans):
                return cls(rows, spans, at, window)
        return None

    def find(self, spans: Spans) -> Ints | None:
        if not isinstance(spans, EqualLengthSpans) or spans.step != self._step:
            return None
        text = spans.text()
        found = self._slots.find(_windows_of(text, self._step, self._window) * _ODD)
        known = self._names.take(found).tobytes()
        if known == text:
            return found
        is_wrong = (self._bytes_of(known) != self._bytes_of(text)).any(axis=1)
        corrected = self._corrected(found, is_wrong, spans)
        is_right = corrected is not None and self._names.take(corrected).tobytes() == text
        return corrected if is_right else None

    def _bytes_of(self, text: bytes) -> Bytes:
        return np.frombuffer(text, np.uint8).reshape(-1, self._step)


class MixedLengthLookup(Lookup):
    """Names of different lengths, padded with zeros."""

    def __init__(self, rows: Mapping[str, int], words: Words, at: Ints) -> None:
        self._mixers = mixers(words.shape[1])
        self._names = _in_rows(words, at)
        super().__init__(rows, Slots(self._names @ self._mixers, at))

    def find(self, spans: Spans) -> Ints | None:
        words = spans.words(self._names.shape[1] * WORD)
        if words is None:
            return None
        found = self._slots.find(words @ self._mixers)
        # A comparison of bytes is one memcmp.
        if self._names.take(found, axis=0).tobytes() == words.tobytes():
            return found
        corrected = self._corrected(found, (self._names[found] != words).any(axis=1), spans)
        is_right = corrected is not None and np.array_equal(self._names[corrected], words)
        return corrected if is_right else None


def _in_rows(names: Names, at: Ints) -> Names:
    placed = names.take(np.zeros(int(at.max()) + 1, np.int64), axis=0)
    placed[at] = names
    return placed


def _windows_of(text: bytes, step: int, window: int) -> Words:
    return np.ndarray(len(text) // step, _WORD_TYPE, text, window, (step,))


def _window_offsets(text: bytes, step: int) -> list[int]:
    """The offsets to try first: where most bytes differ between names."""
    if step < WORD:
        return []
    names = np.frombuffer(text, np.uint8).reshape(-1, step)
    varies = (names != names[0]).any(axis=0)
    seen = np.convolve(varies, np.ones(WORD, np.int64), "valid")
    places: list[int] = np.argsort(-seen, kind="stable")[:_WINDOWS_TRIED].tolist()
    return places
