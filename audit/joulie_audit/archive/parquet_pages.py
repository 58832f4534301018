"""What the pages of a column hold, by their headers in Thrift's compact protocol.

A list of a billion equal values takes a few bytes of a page. Readers of Parquet believe the header
of the page, whatever the file says elsewhere, so it is read before any of them. pyarrow's own
reader of footers ends the process at some that are damaged.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3  # of FileMetaData, RowGroup and ColumnChunk
_PATH, _CHUNK_VALUES, _CHUNK_SIZE = 3, 5, 7  # of ColumnMetaData
_FIRST_DATA_PAGE, _DICTIONARY_PAGE = 9, 11
_COMPRESSED_SIZE, _DATA_PAGE, _DATA_PAGE_V2 = 3, 5, 8  # of a PageHeader
_NUM_VALUES = 1  # of both
_ENCODING, _ENCODING_V2 = 2, 4
_PLAIN = 0
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST = range(1, 10)
_STRUCT = 12
_DEEPEST = 8  # of values within values
_LONG_LIST = 15  # its count follows
_TAIL = 8  # bytes behind the footer: its length, and PAR1
_Fields = Mapping[int, Any]


class Chunk(NamedTuple):
    """The part of a column that lies in one row group."""

    path: str
    values: int
    begin: int
    end: int


def chunks_in(content: bytes) -> list[Chunk]:
    """Of each row group its columns."""
    end = len(content) - _TAIL
    begin = end - int.from_bytes(content[end : end + 4], "little")
    if not 0 <= begin < end:
        raise ValueError("it has no footer")
    footer, _ = _struct(content, begin)
    groups = [group[_COLUMNS] for group in footer.get(_ROW_GROUPS, ())]
    return [_chunk_of(column[_META_DATA], begin) for group in groups for column in group]


def _chunk_of(fields: _Fields, footer: int) -> Chunk:
    begin = fields[_FIRST_DATA_PAGE]
    if 0 < fields.get(_DICTIONARY_PAGE, 0) < begin:
        begin = fields[_DICTIONARY_PAGE]
    end, values = begin + fields[_CHUNK_SIZE], fields[_CHUNK_VALUES]
    if values and not 0 <= begin <= end <= footer:
        raise ValueError("a column lies outside of its file")
    return Chunk(b".".join(fields[_PATH]).decode(), values, begin, end)


def values_in(content: bytes, chunk: Chunk) -> int:
    pages = _pages(content, chunk)
    found = (page.get(_DATA_PAGE) or page.get(_DATA_PAGE_V2) or {} for page in pages)
    return sum(max(page.get(_NUM_VALUES, 0), 0) for page in found)


def is_by_value(content: bytes, chunk: Chunk) -> bool:
    """Whether each value takes bytes of its own, so that a few cannot stand for many."""
    return all(_encoding_of(page) == _PLAIN for page in _pages(content, chunk))


def _encoding_of(page: _Fields) -> Any:
    """None of a page that is a dictionary."""
    if _DATA_PAGE in page:
        return page[_DATA_PAGE].get(_ENCODING)
    return page.get(_DATA_PAGE_V2, {}).get(_ENCODING_V2)


def _pages(content: bytes, chunk: Chunk) -> Iterator[_Fields]:
    """Of a column without values none: its offsets may name any place."""
    at = chunk.begin
    while chunk.values and at < chunk.end:
        header, at = _struct(content, at)
        size = header.get(_COMPRESSED_SIZE, -1)
        if size < 0 or size > chunk.end - at:
            raise ValueError("a page ends behind its column")
        at += size
        yield header


def _struct(content: bytes, at: int, depth: int = 0) -> tuple[_Fields, int]:
    _require_shallow(depth)
    fields: dict[int, Any] = {}
    number = 0
    while head := content[at]:
        at += 1
        kind, step = head & 0x0F, head >> 4
        if step:
            number += step
        else:
            number, at = _signed(content, at)
        fields[number], at = _value(content, at, kind, depth)
    return fields, at + 1


def _value(content: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if kind in (_I16, _I32, _I64):
        return _signed(content, at)
    if kind == _BINARY:
        length, at = _unsigned(content, at)
        return content[at : at + length], at + length
    if kind == _LIST:
        return _list(content, at, depth + 1)
    if kind == _STRUCT:
        return _struct(content, at, depth + 1)
    if kind in (_BYTE, _DOUBLE):
        end = at + (1 if kind == _BYTE else 8)
        return content[at:end], end
    raise ValueError("it has a set or a map")


def _require_shallow(depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError("its values are nested too deep")


def _list(content: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    _require_shallow(depth)
    head = content[at]
    count, kind, at = head >> 4, head & 0x0F, at + 1
    if count == _LONG_LIST:
        count, at = _unsigned(content, at)
    values: list[Any] = []
    for _ in range(count):  # each takes a byte of the content at least, which ends
        value, at = _item(content, at, kind, depth)
        values.append(value)
    return values, at


def _item(content: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Unlike in a field, a flag takes a byte."""
    if kind in (_TRUE, _FALSE):
        return content[at] == _TRUE, at + 1
    return _value(content, at, kind, depth)


def _signed(content: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(content, at)
    return (value >> 1) ^ -(value & 1), at


def _unsigned(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while content[at] >= 0x80:
        value |= (content[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | content[at] << shift, at + 1
