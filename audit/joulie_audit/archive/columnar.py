"""Column files: Parquet if pyarrow is installed, else MessagePack compressed with zlib."""

import zlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import msgspec

from joulie_audit.archive.untrusted_files import LARGEST_FILE

ROWS_AT_ONCE = 65_536
_POINTER = 8  # bytes of a value in a list, whatever it is
Columns = Mapping[str, Sequence[Any]]  # int, str or bytes; all of one length


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
        names: list[str] = self._parquet.read_schema(self._arrow.BufferReader(content)).names
        buffer = self._arrow.BufferReader(content)
        file = self._parquet.ParquetFile(buffer, read_dictionary=names)
        columns: dict[str, list[Any]] = {name: [] for name in names}
        room = LARGEST_FILE
        for name, values in columns.items():
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=[name]):
                [column] = batch.columns
                room -= self._inflated(column)
                if room < 0:
                    raise ValueError("it inflates without end")
                values += self._decoded(column).to_pylist()
        return columns

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
        inflating = zlib.decompressobj()
        rows = inflating.decompress(content, LARGEST_FILE)  # a thousand bytes may come of one
        if not inflating.eof:
            raise ValueError("it ends early, or inflates without end")
        return msgspec.msgpack.decode(rows, type=dict[str, list[Any]])


def has_parquet() -> bool:
    return find_spec("pyarrow") is not None


def format_of(suffix: str) -> Format:
    return Parquet() if suffix == Parquet.suffix else Segment()
