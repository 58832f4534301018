"""Column files: Parquet if pyarrow is installed, else MessagePack compressed with zlib."""

import zlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import msgspec

from joulie_audit.archive.untrusted_files import LARGEST_FILE

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

    def write(self, file: Path, columns: Columns) -> None:
        self._parquet.write_table(self._arrow.table(dict(columns)), file, compression="zstd")

    def read(self, content: bytes) -> Columns:
        table = self._parquet.read_table(self._arrow.BufferReader(content))
        columns: Columns = table.to_pydict()
        return columns


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
