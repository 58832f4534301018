"""Column files: Parquet if pyarrow is installed, else MessagePack compressed with zlib."""

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np

from joulie_audit.archive.parquet_pages import chunks_in, is_by_value, values_in
from joulie_audit.columns.arrays import UNKNOWN, Ints, Names, Numbers, Values, listed, names_of
from joulie_audit.columns.ledger_columns import INTEGERS, Arrays, arrays_of
from joulie_audit.columns.messages import STREAMS, Messages
from joulie_audit.columns.tables import MOST_ROWS, Columns, Kind, TypedColumns
from joulie_bus.core.inflating import inflated

LARGEST_TABLE = 2 << 30  # 20,000 decisions of 5,000 nodes have half of it
MOST_COLUMNS = 64
ROWS_AT_ONCE = 65_536
_POINTER = 8  # bytes of a value in a list, whatever it is
Kinds = Mapping[str, Kind]
_AtMost = msgspec.Meta(max_length=MOST_ROWS)
_columns_in = msgspec.msgpack.Decoder(
    Annotated[dict[str, msgspec.Raw], msgspec.Meta(max_length=MOST_COLUMNS)]
).decode
_texts_in = msgspec.msgpack.Decoder(
    Annotated[list[str | bool | int | float | None], _AtMost]
).decode
_bytes_in = msgspec.msgpack.Decoder(Annotated[list[bytes | int | float | None], _AtMost]).decode


class Format(Protocol):
    suffix: str

    def write(self, file: Path, columns: TypedColumns, kinds: Kinds) -> None:
        """`kinds` are those of a typed table; none for a table of bytes."""

    def read(self, content: bytes) -> Columns:
        """A table of bytes."""
        ...

    def messages(self, content: bytes) -> Messages:
        """A table of messages."""
        ...

    def holds(self, content: bytes, columns: TypedColumns, kinds: Kinds) -> bool:
        """Whether a file is the typed table of these columns."""
        ...

    def arrays(self, content: bytes, kinds: Kinds) -> Arrays:
        """A typed table, without its numbers that are no integers."""
        ...


class Parquet:
    """Parquet with zstd, which analysis tools can read."""

    suffix = ".parquet"

    def __init__(self) -> None:
        self._arrow = import_module("pyarrow")
        self._parquet = import_module("pyarrow.parquet")
        self._compute = import_module("pyarrow.compute")

    def write(self, file: Path, columns: TypedColumns, kinds: Kinds) -> None:
        table = self._arrow.table(
            {name: self._column(values, kinds.get(name)) for name, values in columns.items()}
        )
        self._parquet.write_table(table, file, compression="zstd", **self._encodings(table.schema))

    def _column(self, values: Values, kind: Kind | None) -> Any:
        """Of its type also where no value is known: engines join the files of all parts."""
        arrow = self._arrow
        if isinstance(values, Names | Numbers):
            return self._column_of(values, kind)
        if kind is None:
            return arrow.array(values)
        if kind.width:
            return self._lists(values, kind)
        if kind is Kind.TIME:
            return arrow.array(values, arrow.int64()).cast(arrow.timestamp("ms", "UTC"))
        return arrow.array(values, getattr(arrow, _ARROW_TYPES[kind])())

    def _lists(self, values: Sequence[bytes | None], kind: Kind) -> Any:
        arrow = self._arrow
        counts = [len(value or b"") // kind.width for value in values]
        ends = np.cumsum([0, *counts], dtype=np.int32)
        each = np.frombuffer(b"".join(filter(None, values)), _ITEMS[kind])
        are_null = arrow.array([value is None for value in values], arrow.bool_())
        return arrow.ListArray.from_arrays(arrow.array(ends), arrow.array(each), mask=are_null)

    def _column_of(self, values: Names | Numbers, kind: Kind | None) -> Any:
        arrow = self._arrow
        if isinstance(values, Names):
            which = arrow.array(values.which, mask=values.which < 0)
            texts = arrow.array(values.known, arrow.string())
            return arrow.DictionaryArray.from_arrays(which, texts).dictionary_decode()
        integers = arrow.array(values.values, mask=~values.known)
        return integers.cast(arrow.bool_()) if kind is Kind.FLAG else self._column(integers, kind)

    def _encodings(self, schema: Any) -> dict[str, Any]:
        """Most integers differ a little from the one before. Texts repeat, and bytes do not."""
        types = self._arrow.types
        texts = [each.name for each in schema if types.is_string(each.type)]
        steps = [
            each.name
            for each in schema
            if types.is_int64(each.type) or types.is_timestamp(each.type)
        ]
        delta = dict.fromkeys(steps, "DELTA_BINARY_PACKED")
        return {"use_dictionary": texts, "column_encoding": delta}

    def read(self, content: bytes) -> Columns:
        columns: dict[str, list[Any]] = {}
        for name, portions in self._columns_in(content):
            values = columns[name] = []
            for portion in portions:
                values += self._plain(portion).to_pylist()
        return columns

    def messages(self, content: bytes) -> Messages:
        integers: dict[str, Ints] = {}
        texts: dict[str, Names] = {}
        bodies: list[bytes] = []
        for name, portions in self._columns_in(content):
            if name == "body":
                bodies = [body for portion in portions for body in self._bodies(portion)]
            elif name in ("stream", "subject"):
                texts[name] = self._names(portions)
            elif name in ("position", "sequence", "at"):
                parts = [self._integers(self._without_null(portion)) for portion in portions]
                integers[name] = np.concatenate([_NO_INTEGERS, *parts])
            else:
                sum(map(len, portions))  # what it inflates to is bounded
        return _messages(integers, texts, bodies)

    def _bodies(self, portion: Any) -> Sequence[bytes]:
        column = self._plain(self._without_null(portion))
        if column.type != self._arrow.binary():
            raise ValueError(f"a column of bodies is of type {column.type}")
        _, ends, content = column.buffers()
        places = np.frombuffer(ends, np.int32)[column.offset :][: len(column) + 1].tolist()
        held = content.to_pybytes() if content else b""
        return [held[begin:end] for begin, end in pairwise(places)]

    def _without_null(self, portion: Any) -> Any:
        if portion.null_count:
            raise ValueError("a message has a null")
        return portion

    def holds(self, content: bytes, columns: TypedColumns, kinds: Kinds) -> bool:
        names: list[str] = []
        for name, portions in self._columns_in(content, _lists_of(kinds)):
            names.append(name)
            if name not in columns or not self._has_count(content, name, columns[name], kinds):
                return False
            if not self._are(portions, columns[name], kinds[name]):
                return False
        return names == list(columns)

    def _has_count(self, content: bytes, name: str, values: Values, kinds: Kinds) -> bool:
        """Whether lists have as many values as they should, before a few bytes become billions of
        them. An empty list and a null take the place of one."""
        width = kinds[name].width
        if not width:
            return True
        found = sum(
            values_in(content, chunk)
            for chunk in chunks_in(content)
            if chunk.path.partition(".")[0] == name
        )
        return found == sum(max(len(value or b"") // width, 1) for value in listed(values))

    def _are(self, portions: Iterator[Any], values: Values, kind: Kind) -> bool:
        """Also of the same type, which engines rely on."""
        if isinstance(values, Names):
            return self._are_names(portions, values)
        expected, rows = self._column(values, kind), 0
        for portion in portions:
            if not self._plain(portion).equals(expected.slice(rows, len(portion))):
                return False
            rows += len(portion)
        return bool(rows == len(expected))

    def _are_names(self, portions: Iterator[Any], expected: Names) -> bool:
        known = {text: place for place, text in enumerate(expected.known)}
        rows = 0
        for portion in portions:
            if not self._has_dictionary(portion) or portion.type.value_type != self._arrow.string():
                return False
            found, here = self._names(iter((portion,))), expected.which[rows : rows + len(portion)]
            places = np.array([*(known.get(text, _NOWHERE) for text in found.known), UNKNOWN])
            if not np.array_equal(places[found.which], here):
                return False
            rows += len(portion)
        return rows == len(expected)

    def arrays(self, content: bytes, kinds: Kinds) -> Arrays:
        integers: dict[str, Ints] = {}
        texts: dict[str, Names] = {}
        for name, portions in self._columns_in(content):
            if kinds.get(name) is Kind.TEXT:
                texts[name] = self._names(portions)
            elif kinds.get(name) in INTEGERS:
                parts = [self._integers(portion) for portion in portions]
                integers[name] = np.concatenate([_NO_INTEGERS, *parts])
        return Arrays(integers, texts)

    def _columns_in(
        self, content: bytes, lists: Collection[str] = ()
    ) -> Iterator[tuple[str, Iterator[Any]]]:
        """Column by column and some rows at a time: a few bytes may stand for any number of equal
        values, which take memory only once their size is known."""
        schema = self._parquet.read_schema(self._arrow.BufferReader(content))
        self._require_plain(schema, lists)
        by_value = self._by_value(content, schema)
        file = self._parquet.ParquetFile(
            self._arrow.BufferReader(content),
            read_dictionary=[name for name in schema.names if name not in by_value | {*lists}],
        )
        room = _Room()
        for name in schema.names:
            yield name, self._portions(file, name, room)

    def _by_value(self, content: bytes, schema: Any) -> set[str]:
        """The columns of bytes that are read without a dictionary, in half of the time."""
        found = {each.name for each in schema if each.type == self._arrow.binary()}
        return found - {
            chunk.path
            for chunk in chunks_in(content)
            if chunk.path in found and not is_by_value(content, chunk)
        }

    def _portions(self, file: Any, name: str, room: "_Room") -> Iterator[Any]:
        rows = 0
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=[name]):
            [column] = batch.columns
            rows += len(column)
            room.take(self._inflated(column), rows)
            yield column

    def _integers(self, portion: Any) -> Ints:
        known = self._compute.fill_null(self._plain(portion).cast(self._arrow.int64()), UNKNOWN)
        found: Ints = known.to_numpy(zero_copy_only=False)
        return found

    def _names(self, portions: Iterator[Any]) -> Names:
        """Each portion has a dictionary of its own."""
        known: dict[str, int] = {}
        which: list[Ints] = []
        for portion in portions:
            texts = portion.dictionary.to_pylist()
            places = np.array([_place_of(text, known) for text in texts], np.int64)
            indices = self._integers(portion.indices)
            which.append(np.where(indices < 0, UNKNOWN, np.append(places, UNKNOWN)[indices]))
        return Names(list(known), np.concatenate([_NO_INTEGERS, *which]))

    def _require_plain(self, schema: Any, lists: Collection[str]) -> None:
        """One list within a row would stand for any number of values."""
        if len(set(schema.names)) != len(schema.names) or len(schema.names) > MOST_COLUMNS:
            raise ValueError(f"it has more than {MOST_COLUMNS} columns, or two of one name")
        nested = [
            each.name
            for each in schema
            if each.type.num_fields and (each.name not in lists or not self._is_list(each.type))
        ]
        if nested:
            raise ValueError(f"the column {nested[0][:80]!a} has values within values")

    def _is_list(self, kind: Any) -> bool:
        arrow = self._arrow
        return kind in map(arrow.list_, (arrow.int32(), arrow.int16(), arrow.uint8()))

    def _inflated(self, column: Any) -> int:
        each = _POINTER * len(column)
        if not self._has_dictionary(column):
            return max(each, int(column.nbytes))
        lengths = self._compute.binary_length(column.dictionary).take(column.indices)
        return each + int(self._compute.sum(lengths).as_py() or 0)

    def _plain(self, column: Any) -> Any:
        return column.dictionary_decode() if self._has_dictionary(column) else column

    def _has_dictionary(self, column: Any) -> bool:
        return isinstance(column, self._arrow.DictionaryArray)


class Segment:
    """MessagePack with zlib: needs no extra dependency."""

    suffix = ".seg"

    def write(self, file: Path, columns: TypedColumns, kinds: Kinds) -> None:
        plain = {name: _listed(values, kinds.get(name)) for name, values in columns.items()}
        file.write_bytes(zlib.compress(msgspec.msgpack.encode(plain), 6))

    def read(self, content: bytes) -> Columns:
        columns = _columns_in(inflated(content, LARGEST_TABLE))
        return {name: _column_in(packed) for name, packed in columns.items()}

    def holds(self, content: bytes, columns: TypedColumns, kinds: Kinds) -> bool:
        plain = {name: _listed(values, kinds[name]) for name, values in columns.items()}
        return self.read(content) == plain

    def messages(self, content: bytes) -> Messages:
        read = self.read(content)
        integers = {name: np.array(read[name], np.int64) for name in ("position", "sequence", "at")}
        texts = {name: names_of(list(read[name])) for name in ("stream", "subject")}
        return _messages(integers, texts, list(read["body"]))

    def arrays(self, content: bytes, kinds: Kinds) -> Arrays:
        return arrays_of(self.read(content), kinds)


class _Room:
    """What a file may still inflate to."""

    def __init__(self) -> None:
        self._bytes = LARGEST_TABLE

    def take(self, inflated_bytes: int, rows: int) -> None:
        self._bytes -= inflated_bytes
        if self._bytes < 0 or rows > MOST_ROWS:
            raise ValueError("it inflates without end")


_ARROW_TYPES = {
    Kind.INTEGER: "int64",
    Kind.NUMBER: "float64",
    Kind.FLAG: "bool_",
    Kind.TEXT: "string",
}
_ITEMS = {Kind.INT32S: "<i4", Kind.INT16S: "<i2", Kind.BYTES: "u1"}
_NO_INTEGERS: Ints = np.empty(0, np.int64)
_NOWHERE = -2  # the place of a text that the expected column does not have


def _messages(
    integers: Mapping[str, Ints], texts: Mapping[str, Names], bodies: Sequence[bytes]
) -> Messages:
    """Raises unless each message has all of it."""
    stream, subject = texts["stream"], texts["subject"]
    unknown = set(stream.known) - STREAMS.keys()
    if unknown or min((*stream.which.tolist(), *subject.which.tolist()), default=0) < 0:
        raise ValueError(f"it has messages of no stream or without a subject {sorted(unknown)!a}")
    found = Messages(
        integers["position"], stream, integers["sequence"], integers["at"], bodies, subject
    )
    if len({len(column) for column in found}) > 1:
        raise ValueError("its columns have not as many rows as each other")
    return found


def _lists_of(kinds: Kinds) -> list[str]:
    return [name for name, kind in kinds.items() if kind.width]


def _place_of(text: str | None, known: dict[str, int]) -> int:
    return UNKNOWN if text is None else known.setdefault(text, len(known))


def _listed(values: Values, kind: Kind | None) -> Sequence[Any]:
    return listed(values, flags=kind is Kind.FLAG)


def _column_in(packed: msgspec.Raw) -> list[Any]:
    """Texts or bytes: a list of any values would take 64 bytes for one of the file."""
    values: list[Any]
    try:
        values = _texts_in(packed)
    except msgspec.ValidationError:
        values = _bytes_in(packed)
    return values


def has_parquet() -> bool:
    return find_spec("pyarrow") is not None


def format_of(suffix: str) -> Format:
    return Parquet() if suffix == Parquet.suffix else Segment()
