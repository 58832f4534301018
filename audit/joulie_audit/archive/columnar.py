"""Column files: Parquet if pyarrow is installed, else MessagePack compressed with zlib."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np

from joulie_audit.columns.ledger_columns import INTEGERS, UNKNOWN, Arrays, Ints, Names, arrays_of
from joulie_audit.columns.tables import MOST_ROWS, Columns, Kind
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

    def write(self, file: Path, columns: Columns, kinds: Kinds) -> None:
        """`kinds` are those of a typed table; none for a table of bytes."""

    def read(self, content: bytes) -> Columns:
        """A table of bytes."""
        ...

    def holds(self, content: bytes, columns: Columns, kinds: Kinds) -> bool:
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

    def write(self, file: Path, columns: Columns, kinds: Kinds) -> None:
        table = {name: self._column(values, kinds.get(name)) for name, values in columns.items()}
        self._parquet.write_table(
            self._arrow.table(table), file, compression="zstd", **self._encodings(kinds)
        )

    def _column(self, values: Sequence[Any], kind: Kind | None) -> Any:
        """Of its type also where no value is known: engines join the files of all parts."""
        arrow = self._arrow
        match kind:
            case None:
                return arrow.array(values)
            case Kind.TIME:
                return arrow.array(values, arrow.int64()).cast(arrow.timestamp("ms", "UTC"))
            case Kind.INTEGER:
                return arrow.array(values, arrow.int64())
            case Kind.NUMBER:
                return arrow.array(values, arrow.float64())
            case Kind.FLAG:
                return arrow.array(values, arrow.bool_())
            case Kind.TEXT:
                return arrow.array(values, arrow.string())

    def _encodings(self, kinds: Kinds) -> dict[str, Any]:
        """Most integers differ a little from the one before."""
        if not kinds:
            return {}
        texts = [name for name, kind in kinds.items() if kind is Kind.TEXT]
        steps = [name for name, kind in kinds.items() if kind in (Kind.INTEGER, Kind.TIME)]
        delta = dict.fromkeys(steps, "DELTA_BINARY_PACKED")
        return {"use_dictionary": texts, "column_encoding": delta}

    def read(self, content: bytes) -> Columns:
        columns: dict[str, list[Any]] = {}
        for name, portions in self._columns_in(content):
            values = columns[name] = []
            for portion in portions:
                values += self._plain(portion).to_pylist()
        return columns

    def holds(self, content: bytes, columns: Columns, kinds: Kinds) -> bool:
        names: list[str] = []
        for name, portions in self._columns_in(content):
            names.append(name)
            if name not in columns or not self._are(portions, columns[name], kinds[name]):
                return False
        return names == list(columns)

    def _are(self, portions: Iterator[Any], values: Sequence[Any], kind: Kind) -> bool:
        """Also of the same type, which engines rely on."""
        expected, rows = self._column(values, kind), 0
        for portion in portions:
            if not self._plain(portion).equals(expected.slice(rows, len(portion))):
                return False
            rows += len(portion)
        return bool(rows == len(expected))

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

    def _columns_in(self, content: bytes) -> Iterator[tuple[str, Iterator[Any]]]:
        """Column by column and some rows at a time: a few bytes may stand for any number of equal
        values, which take memory only once their size is known."""
        schema = self._parquet.read_schema(self._arrow.BufferReader(content))
        self._require_plain(schema)
        buffer = self._arrow.BufferReader(content)
        file = self._parquet.ParquetFile(buffer, read_dictionary=schema.names)
        room = _Room()
        for name in schema.names:
            yield name, self._portions(file, name, room)

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
            places = np.array([known.setdefault(text, len(known)) for text in texts], np.int64)
            indices = self._integers(portion.indices)
            which.append(np.where(indices < 0, UNKNOWN, np.append(places, UNKNOWN)[indices]))
        return Names(list(known), np.concatenate([_NO_INTEGERS, *which]))

    def _require_plain(self, schema: Any) -> None:
        """One list within a row would stand for any number of values."""
        if len(set(schema.names)) != len(schema.names) or len(schema.names) > MOST_COLUMNS:
            raise ValueError(f"it has more than {MOST_COLUMNS} columns, or two of one name")
        nested = [each.name for each in schema if each.type.num_fields]
        if nested:
            raise ValueError(f"the column {nested[0][:80]!a} has values within values")

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

    def write(self, file: Path, columns: Columns, kinds: Kinds) -> None:
        file.write_bytes(zlib.compress(msgspec.msgpack.encode(dict(columns)), 6))

    def read(self, content: bytes) -> Columns:
        columns = _columns_in(inflated(content, LARGEST_TABLE))
        return {name: _column_in(packed) for name, packed in columns.items()}

    def holds(self, content: bytes, columns: Columns, kinds: Kinds) -> bool:
        return self.read(content) == columns

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


_NO_INTEGERS: Ints = np.empty(0, np.int64)


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
