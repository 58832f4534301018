"""Columns of a typed table as arrays, and as lists."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
UNKNOWN = -1  # in place of null: of a text, and of an integer where there are no flags


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column of integers or flags; `known` is false where a value is null."""

    values: Ints
    known: Flags

    def __len__(self) -> int:
        return len(self.values)

    def chosen(self, rows: npt.NDArray[Any]) -> "Numbers":
        return Numbers(self.values[rows], self.known[rows])


@dataclass(frozen=True, slots=True)
class Names:
    """A column of texts: each text once, and for each row which of them it has."""

    known: Sequence[str]
    which: Ints  # UNKNOWN for null

    def __len__(self) -> int:
        return len(self.which)

    def chosen(self, rows: npt.NDArray[Any]) -> "Names":
        return Names(self.known, self.which[rows])


Values = Sequence[Any] | Numbers | Names


def all_known(values: Ints) -> Numbers:
    return Numbers(values, np.ones(len(values), np.bool_))


def names_of(values: Sequence[str | None]) -> Names:
    known: dict[str, int] = {}
    which = [UNKNOWN if text is None else known.setdefault(text, len(known)) for text in values]
    return Names(list(known), np.array(which, np.int64))


def listed(values: Values, *, flags: bool = False) -> Sequence[Any]:
    """A value for each row; None for null."""
    match values:
        case Names():
            texts = [*values.known, None]
            return [texts[at] for at in values.which.tolist()]
        case Numbers():
            plain: list[Any] = (values.values.astype(bool) if flags else values.values).tolist()
            if values.known.all():
                return plain
            rows = zip(plain, values.known.tolist(), strict=True)
            return [value if is_known else None for value, is_known in rows]
        case _:
            return values
