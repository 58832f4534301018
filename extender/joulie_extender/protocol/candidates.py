"""The list of node names in a request: its rows, and its names in replies."""

from collections.abc import Sequence
from itertools import compress, repeat
from typing import overload

import msgspec
import numpy as np

from joulie_bus.events import Candidates
from joulie_extender.protocol.name_index import NameIndex
from joulie_projections.twin.arrays import Bools, Ints
from joulie_projections.twin.columns import TwinColumns

BEFORE_NAMES = b',"Nodes":null,"NodeNames":'  # as kube-scheduler writes it
Flags = Sequence[bool] | Bools  # one for each name
_NO_ROWS: Ints = np.zeros(0, np.int64)
_NO_CANDIDATES = Candidates(ordinals=b"")
_encode = msgspec.json.Encoder().encode
_decode_names = msgspec.json.Decoder(list[str]).decode
_decode_name = msgspec.json.Decoder(str).decode


def rows_by_name(twin_columns: TwinColumns, names: Sequence[str]) -> Ints:
    return np.fromiter(map(twin_columns.rows.get, names, repeat(0)), np.int64, len(names))


def candidates_of(names: Sequence[str], rows: Ints) -> Candidates:
    """Four bytes per node: its ordinal, which never changes; unknown nodes are listed by name."""
    ordinals = _ordinals(rows)
    if rows.all():
        return Candidates(ordinals=ordinals)
    strangers = [names[at] for at in np.flatnonzero(rows == 0).tolist()]
    return Candidates(ordinals=ordinals, strangers=strangers)


def _ordinals(rows: Ints) -> bytes:
    return (rows - 1).astype("<i4").tobytes()


class Names(Sequence[str]):
    """One list of names in request order, with the bytes it came in; decoded only when needed."""

    def __init__(
        self, raw: bytes, names: list[str] | None = None, quoted: list[bytes] | None = None
    ) -> None:
        self.raw = raw
        self._names = names
        self._quoted = quoted
        self._mapping: object = None
        self._rows = _NO_ROWS
        self._candidates = _NO_CANDIDATES

    @classmethod
    def of(cls, names: list[str]) -> "Names":
        return cls(_encode(names), names)

    @classmethod
    def found(cls, raw: bytes, index: NameIndex) -> "Names | None":
        """The list, if the index has all of its names, which is the common case.

        It is then a list of exactly these names: each part between commas is one of them.
        """
        if not (raw.startswith(b'["') and raw.endswith(b'"]')):
            return None
        quoted = raw[1:-1].split(b",")
        rows = index.rows_of(quoted)
        if not rows.all():
            return None
        names = cls(raw, quoted=quoted)
        names._set_rows(rows, Candidates(ordinals=_ordinals(rows)), index.rows)
        return names

    @property
    def names(self) -> list[str]:
        if self._names is None:
            self._names = _decode_names(self.raw)
        return self._names

    def __len__(self) -> int:
        return len(self.names if self._quoted is None else self._quoted)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        if self._names is None and self._quoted is not None and isinstance(at, int):
            return _decode_name(self._quoted[at])  # an entry names the best few of hundreds
        return self.names[at]

    def rows_on(self, twin_columns: TwinColumns) -> Ints:
        if self._mapping is not twin_columns.rows:
            rows = rows_by_name(twin_columns, self.names)
            self._set_rows(rows, candidates_of(self, rows), twin_columns.rows)
        return self._rows

    def _set_rows(self, rows: Ints, candidates: Candidates, mapping: object) -> None:
        self._rows = rows
        self._candidates = candidates
        self._mapping = mapping

    def candidates_on(self, twin_columns: TwinColumns) -> Candidates:
        self.rows_on(twin_columns)
        return self._candidates

    @property
    def quoted(self) -> list[bytes]:
        """Each name as JSON, as it was sent."""
        if self._quoted is None:
            parts = self.raw.strip()[1:-1].split(b",")
            # As many parts as names: no comma but those between them.
            is_cut = len(parts) == len(self.names)
            self._quoted = parts if is_cut else list(map(_encode, self.names))
        return self._quoted

    def where(self, is_kept: Bools) -> bytes:
        """The JSON list of the selected names, each as it was sent."""
        return b"[" + b",".join(self._selected(is_kept)) + b"]"

    def members(self, is_in: Bools, value: bytes) -> bytes:
        """The JSON members `"n1":value,"n2":value` of the selected names, each as it was sent."""
        names = self._selected(is_in)
        return (b":" + value + b",").join(names) + b":" + value if names else b""

    def _selected(self, is_in: Bools) -> list[bytes]:
        if len(is_in) != len(self):
            raise ValueError(f"{len(is_in)} flags for {len(self)} names")
        return list(compress(self.quoted, is_in.tolist()))

    @property
    def repeated(self) -> int:
        """The number of duplicate names."""
        return len(self) - len(set(self.names))


def failed_nodes(names: Names, passed: Flags, reason: str) -> bytes:
    """The map `{"n1":"because","n2":"because"}`, with one reason for all."""
    return b"{" + names.members(~np.asarray(passed, np.bool_), _encode(reason)) + b"}"


def host_priorities(names: Names, scores: Ints) -> bytes:
    """Each host once, with its score: kube-scheduler would add a second score to the first.

    Formatted as `NameIndex.host_priorities` formats it.
    """
    lines: dict[str, bytes] = {}
    values: list[int] = scores.tolist()
    for name, quoted, score in zip(names.names, names.quoted, values, strict=True):
        if name not in lines:
            lines[name] = b'{"Host":%b,"Score":%3d}' % (quoted, score)
    return b"[" + b",".join(lines.values()) + b"]"
