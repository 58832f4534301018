"""The positions of the names in a JSON list, found without decoding it."""

from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from joulie_extender.protocol.mixing import Words
from joulie_projections.twin.arrays import Bools, Ints

_QUOTE, _COMMA = b'",'
BETWEEN = b'","'  # from the end of a name to the start of the next


class Spans(ABC):
    """The positions of the names in a list of the exact form `["n1","n2"]`.

    A name is looked up together with the `","` behind it (`"]` behind the last one), so that a
    match also proves that the name ends there.
    """

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def bytes_at(self, at: int) -> bytes:
        """One name. Raises IndexError."""

    @abstractmethod
    def where(self, is_kept: Bools) -> bytes:
        """The JSON list of the selected names."""

    def members(self, is_in: Bools, value: bytes) -> bytes | None:
        """`"n1":value,"n2":value` of the selected names. None if this is no faster here than one by
        one.
        """
        return None

    @abstractmethod
    def words(self, width: int) -> Words | None:
        """A row of `width` bytes for each name, padded with zeros. None if a name does not fit."""

    def text(self, more: int = 0) -> bytes:
        """The bytes from the first name on, each with its separator, plus `more` zero bytes."""
        return b"".join((self.raw[2:-1], BETWEEN[1:], bytes(more)))


class EqualLengthSpans(Spans):
    """Names of one length, the common case: positions are computed, not searched for.

    Whether every name really ends where it should is checked by the lookup.
    """

    def __init__(self, raw: bytes, step: int) -> None:
        super().__init__(raw)
        self.step = step

    @classmethod
    def cut(cls, raw: bytes) -> "EqualLengthSpans | None":
        end = raw.find(BETWEEN, 2)
        step = (end + len(BETWEEN) if end >= 0 else len(raw) + 1) - 2
        return None if (len(raw) - 1) % step else cls(raw, step)

    def __len__(self) -> int:
        return (len(self.raw) - 1) // self.step

    def bytes_at(self, at: int) -> bytes:
        start = 2 + range(0, len(self.raw) - 1, self.step)[at]
        return self.raw[start : start + self.step - len(BETWEEN)]

    def where(self, is_kept: Bools) -> bytes:
        kept = self._parts()[is_kept].tobytes()
        return b'["' + kept[:-2] + b"]" if kept else b"[]"

    def members(self, is_in: Bools, value: bytes) -> bytes:
        behind = np.frombuffer(b":" + value + b",", np.uint8)
        named = self.step - 1  # with both of its quotation marks
        lines = np.empty((np.count_nonzero(is_in), named + len(behind)), np.uint8)
        lines[:, 0] = _QUOTE
        parts = self._parts()[is_in].view(np.uint8).reshape(-1, self.step)
        lines[:, 1:named] = parts[:, : named - 1]
        lines[:, named:] = behind
        return lines.tobytes()[:-1]

    def _parts(self) -> npt.NDArray[np.void]:
        """Each name with the `","` behind it."""
        return np.frombuffer(self.text(), row_of(self.step))

    def words(self, width: int) -> Words | None:
        if self.step > width:
            return None
        rows = self._parts().astype(row_of(width))  # numpy fills up with zeros
        words: Words = rows.view(np.uint64).reshape(len(rows), -1)
        return words


class MixedLengthSpans(Spans):
    def __init__(self, raw: bytes, starts: Ints, ends: Ints) -> None:
        super().__init__(raw)
        self._starts = starts
        self._ends = ends

    @classmethod
    def cut(cls, raw: bytes) -> "MixedLengthSpans | None":
        text = np.frombuffer(raw, np.uint8)
        quotes = np.flatnonzero(text == _QUOTE)
        starts, ends = quotes[0::2] + 1, quotes[1::2]
        if len(starts) != len(ends) or ends[-1] != len(raw) - 2:
            return None
        between = ends[:-1]
        is_tight = (starts[1:] - between == len(BETWEEN)) & (text[between + 1] == _COMMA)
        return cls(raw, starts, ends) if is_tight.all() else None

    def __len__(self) -> int:
        return len(self._starts)

    def lengths(self) -> Ints:
        return self._ends - self._starts

    def bytes_at(self, at: int) -> bytes:
        return self.raw[self._starts.item(at) : self._ends.item(at)]

    def where(self, is_kept: Bools) -> bytes:
        steps = self.lengths() + len(BETWEEN)
        text = np.frombuffer(self.raw, np.uint8)[1:]
        return b"[" + text[np.repeat(is_kept, steps)][:-1].tobytes() + b"]"

    def words(self, width: int) -> Words | None:
        lengths = self.lengths() + len(BETWEEN)
        if int(lengths.max()) > width:
            return None
        text = self.text(width)
        windows = np.ndarray(len(text) - width, row_of(width), text, strides=(1,))
        words: Words = windows[self._starts - 2].view(np.uint64).reshape(len(self), -1)
        words &= _masks(width)[lengths]
        return words


AS_WRITTEN = (
    EqualLengthSpans.cut,
    MixedLengthSpans.cut,
)  # how a list may be read, the quicker way first


@lru_cache
def row_of(width: int) -> np.dtype[np.void]:
    return np.dtype((np.void, width))


@lru_cache(maxsize=32)
def _masks(width: int) -> Words:
    """For each length, a mask that keeps that many bytes of a row and zeroes the rest."""
    kept = np.tri(width + 1, width, -1, np.uint8) * np.uint8(255)
    return kept.view(np.uint64)
