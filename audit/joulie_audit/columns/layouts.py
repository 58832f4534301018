"""Readings decoded many at a time: the bytes of most differ only in the values of their fields.

Such messages have one layout. Of each, all other bytes are compared with a message that the codec
has decoded, and the values are read at the same places. What has no such layout, or a value beyond
its bounds, is left to the codec.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import inspect

from joulie_audit.columns.arrays import UNKNOWN, Flags, Ints
from joulie_bus.events import TelemetrySampled, codec
from joulie_bus.events.bounds import SEQ_DIGITS
from joulie_bus.events.codec import Sample

FEWEST = 32  # messages that are worth a layout
MOST_LAYOUTS = 16  # of messages of one length
_AT_ONCE = 2048  # rows: they stay in the cache of a core
Bytes = npt.NDArray[np.uint8]
Place = tuple[int, int]  # the first byte, and the one behind the last
_ID = "id"
_COLON, _ZERO, _NINE = b":09"
_WIDTHS = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}  # of an unsigned integer, by its first byte
_WORD = 8  # bytes
_FACTOR = 0x9E3779B97F4A7C15  # odd, with bits all over the word
_SMALL = 0x80  # below it, the first byte is the value


def _fields_of(cls: type[msgspec.Struct]) -> dict[str, inspect.Type]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: _integer_in(field.type) for field in info.fields}


def _integer_in(kind: inspect.Type) -> inspect.Type:
    """That of an optional integer, which is absent if it is not known."""
    if isinstance(kind, inspect.UnionType):
        return next(each for each in kind.types if isinstance(each, inspect.IntType))
    return kind


_OF_MESSAGE, _OF_READING = _fields_of(Sample), _fields_of(TelemetrySampled)


class NoLayout(Exception):
    """The message has a field whose bytes have no fixed place."""


class Decoded(NamedTuple):
    """Messages of one layout."""

    rows: Ints  # which of the messages they are
    texts: list[dict[str, str]]  # each combination of texts once; of the id all but the number
    which: Ints  # the combination of each message
    integers: dict[str, Ints]
    numbers: Ints  # at the end of each id
    is_canonical: Flags  # whether that number has no zero before it
    source: str


class _Layout:
    """The places of all values, found in one message."""

    def __init__(self, body: bytes, sample: Sample) -> None:
        self._body = body
        self._mask = np.full(len(body), 0xFF, np.uint8)  # 0 for the bytes of a value
        self._texts: dict[str, Place] = {}
        self._integers: dict[str, Place] = {}
        self._source = sample.data.source
        try:
            self._map(0, _OF_MESSAGE)
        except IndexError:
            raise NoLayout from None
        begin, end = self._texts[_ID]
        self._digits = body.rfind(b":", begin, end) + 1, end
        self._texts[_ID] = begin, self._digits[0] - 1
        if not 0 < end - self._digits[0] <= SEQ_DIGITS or self._digits[0] <= begin:
            raise NoLayout
        self._expected = self._mask & np.frombuffer(body, np.uint8)

    def _map(self, at: int, fields: dict[str, inspect.Type]) -> int:
        """Notes the places of its values; returns its end."""
        count = self._body[at]
        if not 0x80 <= count <= 0x8F:
            raise NoLayout
        at, seen = at + 1, set[str]()
        for _ in range(count - 0x80):
            begin, at = self._text(at)
            name = self._body[begin:at].decode(errors="replace")
            if name in seen or name not in fields:
                raise NoLayout
            seen.add(name)
            at = self._value(name, fields[name], at)
        return at

    def _value(self, name: str, kind: inspect.Type, at: int) -> int:
        match kind:
            case inspect.IntType():
                return self._integer(name, at)
            case inspect.StrType(pattern=None):
                begin, end = self._texts[name] = self._text(at)
                self._mask[begin:end] = 0
                return end
            case inspect.LiteralType(values=[str(), *_]):
                return self._text(at)[1]
            case inspect.LiteralType() if self._body[at] < _SMALL:
                return at + 1
            case inspect.StructType():
                return self._map(at, _OF_READING)
            case _:
                raise NoLayout

    def _integer(self, name: str, at: int) -> int:
        first = self._body[at]
        if first < _SMALL:
            self._mask[at] = _SMALL
            self._integers[name] = at, at + 1
            return at + 1
        if first not in _WIDTHS:
            raise NoLayout
        begin, end = self._integers[name] = at + 1, at + 1 + _WIDTHS[first]
        self._mask[begin:end] = 0
        return end

    def _text(self, at: int) -> Place:
        first = self._body[at]
        if 0xA0 <= first <= 0xBF:
            return at + 1, at + 1 + first - 0xA0
        if first != 0xD9:
            raise NoLayout
        return at + 2, at + 2 + self._body[at + 1]

    def matches(self, matrix: Bytes) -> Flags:
        """Which rows have this layout: the rest of the message is the same, byte for byte."""
        chunks = [matrix[at : at + _AT_ONCE] for at in range(0, len(matrix), _AT_ONCE)]
        return np.concatenate([self._match(chunk) for chunk in chunks])

    def _match(self, matrix: Bytes) -> Flags:
        same = (matrix & self._mask) == self._expected
        begin, end = self._digits
        digits = matrix[:, begin:end]
        same[:, begin - 1] = matrix[:, begin - 1] == _COLON
        same[:, begin:end] = (digits >= _ZERO) & (digits <= _NINE)
        if same.all():  # much faster than row by row
            return np.ones(len(same), np.bool_)
        return np.asarray(same.all(axis=1))

    def decoded(self, rows: Ints, matrix: Bytes) -> Decoded:
        """Leaves out the rows with a value that the codec refuses."""
        integers = {name: _big_endian(matrix, place) for name, place in self._integers.items()}
        texts, which = self._combinations(matrix)
        good = which >= 0
        for name, values in integers.items():
            good &= _is_within(values, _OF_READING.get(name) or _OF_MESSAGE[name])
        begin, end = self._digits
        powers = 10 ** np.arange(end - begin - 1, -1, -1, dtype=np.int64)
        numbers = (matrix[:, begin:end] - np.uint8(_ZERO)) @ powers
        is_canonical = (matrix[:, begin] != _ZERO) | (end - begin == 1)
        return Decoded(
            rows[good],
            texts,
            which[good],
            {name: values[good].astype(np.int64) for name, values in integers.items()},
            numbers[good],
            is_canonical[good],
            self._source,
        )

    def _combinations(self, matrix: Bytes) -> tuple[list[dict[str, str]], Ints]:
        """The texts that the codec accepts, and which of them each row has; UNKNOWN for others."""
        pieces = [matrix[:, begin:end] for begin, end in self._texts.values()]
        packed = np.ascontiguousarray(np.concatenate(pieces, axis=1))
        firsts, which = _distinct(packed)
        found = [self._unpacked(packed[row].tobytes()) for row in firsts]
        accepted = np.array([each is not None for each in found], np.bool_)
        places = np.where(accepted, np.cumsum(accepted) - 1, UNKNOWN)
        return [each for each in found if each is not None], places[which]

    def _unpacked(self, row: bytes) -> dict[str, str] | None:
        texts: dict[str, str] = {}
        at = 0
        for name, (begin, end) in self._texts.items():
            try:
                text = row[at : at + end - begin].decode()
            except UnicodeDecodeError:
                return None
            kind = _OF_READING.get(name) or _OF_MESSAGE[name]
            assert isinstance(kind, inspect.StrType)
            rest = 1 + self._digits[1] - self._digits[0] if name == _ID else 0
            if not text.isprintable() or len(text) + rest > (kind.max_length or 0):
                return None
            texts[name], at = text, at + end - begin
        return texts


def _distinct(rows: Bytes) -> tuple[list[int], Ints]:
    """The places of rows that differ, and for each row the number of its equal there.

    Rows are compared by a sum of their words, which numpy sorts much faster than Python looks rows
    up. Rows that differ can have one sum, by chance or on purpose: then all are looked up.
    """
    count, width = rows.shape
    words = np.zeros((count, -(-width // _WORD)), np.uint64)
    words.view(np.uint8)[:, :width] = rows
    factors = np.cumprod(np.full(words.shape[1], _FACTOR, np.uint64))
    _, firsts, which = np.unique(words @ factors, return_index=True, return_inverse=True)
    if np.array_equal(words[firsts][which], words):
        return firsts.tolist(), which
    known: dict[bytes, int] = {}
    places = [known.setdefault(row.tobytes(), at) for at, row in enumerate(rows)]
    numbers = {place: number for number, place in enumerate(known.values())}
    return list(numbers), np.array([numbers[place] for place in places], np.int64)


def _big_endian(matrix: Bytes, place: Place) -> npt.NDArray[np.uint64]:
    begin, end = place
    packed = np.ascontiguousarray(matrix[:, begin:end])
    return packed.view(np.dtype(f">u{end - begin}")).ravel().astype(np.uint64)


def _is_within(values: npt.NDArray[np.uint64], kind: inspect.Type) -> Flags:
    assert isinstance(kind, inspect.IntType)
    least, most = max(kind.ge or 0, 0), kind.le
    assert most is not None
    return np.asarray((values >= np.uint64(least)) & (values <= np.uint64(most)))


def decoded_in_layouts(bodies: Sequence[bytes], rows: Ints) -> Iterator[Decoded]:
    """Those of these rows that share a layout with enough others; each row at most once."""
    lengths = np.fromiter(map(len, bodies), np.int64, len(bodies))[rows]
    for length in np.unique(lengths).tolist():
        yield from _of_one_length(bodies, rows[lengths == length], length)


def _of_one_length(bodies: Sequence[bytes], rows: Ints, length: int) -> Iterator[Decoded]:
    if len(rows) < FEWEST:
        return
    joined = b"".join([bodies[row] for row in rows.tolist()])
    matrix = np.frombuffer(joined, np.uint8).reshape(-1, length)
    for _ in range(MOST_LAYOUTS):
        if len(rows) < FEWEST:
            return
        layout = _layout_of(bodies[rows[0]])
        if layout is None:
            rows, matrix = rows[1:], matrix[1:]
            continue
        same = layout.matches(matrix)
        if same.all():
            yield layout.decoded(rows, matrix)
            return
        yield layout.decoded(rows[same], matrix[same])
        rows, matrix = rows[~same], matrix[~same]


def _layout_of(body: bytes) -> _Layout | None:
    sample = codec.open_sample(body)
    try:
        return None if sample is None else _Layout(body, sample)
    except NoLayout:
        return None
