"""Column files: Parquet if pyarrow is installed, else MessagePack compressed with zlib."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec

from joulie_bus.core.inflating import inflated

LARGEST_TABLE = 2 << 30  # 20,000 decisions of 5,000 nodes have half of it
MOST_ROWS = 1_000_000  # ten times those of a part
MOST_COLUMNS = 64
ROWS_AT_ONCE = 65_536
_POINTER = 8  # bytes of a value in a list, whatever it is
Columns = Mapping[str, Sequence[Any]]  # int, str or bytes; all of one length
_AtMost = msgspec.Meta(max_length=MOST_ROWS)
_columns_in = msgspec.msgpack.Decoder(
    Annotated[dict[str, msgspec.Raw], msgspec.Meta(max_length=MOST_COLUMNS)]
).decode
_texts_in = msgspec.msgpack.Decoder(Annotated[list[str | int | float | None], _AtMost]).decode
_bytes_in = msgspec.msgpack.Decoder(Annotated[list[bytes | int | float | None], _AtMost]).decode


class Format(Protocol):
    suffix: str

    def write(self, file: Path, columns: Columns) -> None: ...

    def read(self, content: bytes) -> Columns: ...


class Parquet:
    """Parquet with zstd, which analysis tools can read."""

    suffix = ".parquet"

    def __init__(self) -> None:
        self._arrow = import_module("pyarrow")
        self._parquet = import_module("pyarrow.parquet")
        self._compute = import_module("pyarrow.compute")

    def write(self, file: Path, columns: Columns) -> None:
        self._parquet.write_table(self._arrow.table(dict(columns)), file, compression="zstd")

    def read(self, content: bytes) -> Columns:
        """Column by column and some rows at a time: a few bytes may stand for any number of equal
        values, which take memory only once their size is known."""
        schema = self._parquet.read_schema(self._arrow.BufferReader(content))
        self._require_plain(schema)
        buffer = self._arrow.BufferReader(content)
        file = self._parquet.ParquetFile(buffer, read_dictionary=schema.names)
        columns: dict[str, list[Any]] = {name: [] for name in schema.names}
        room = LARGEST_TABLE
        for name, values in columns.items():
            for column in self._portions(file, name):
                room -= self._inflated(column)
                if room < 0 or len(values) + len(column) > MOST_ROWS:
                    raise ValueError("it inflates without end")
                values += self._decoded(column).to_pylist()
        return columns

    def _portions(self, file: Any, name: str) -> Iterator[Any]:
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=[name]):
            [column] = batch.columns
            yield column

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

    def _decoded(self, column: Any) -> Any:
        return column.dictionary_decode() if self._has_dictionary(column) else column

    def _has_dictionary(self, column: Any) -> bool:
        return isinstance(column, self._arrow.DictionaryArray)


class Segment:
    """MessagePack with zlib: needs no extra dependency."""

    suffix = ".seg"

    def write(self, file: Path, columns: Columns) -> None:
        file.write_bytes(zlib.compress(msgspec.msgpack.encode(dict(columns)), 6))

    def read(self, content: bytes) -> Columns:
        columns = _columns_in(inflated(content, LARGEST_TABLE))
        return {name: _column_in(packed) for name, packed in columns.items()}


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
