"""Tables of a text: columns as wide as their widest cell, or as a terminal draws them."""

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple


class TextTable(NamedTuple):
    """`numbers` are the columns with numbers, which end under their title. The first `keys` columns
    name the row."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Set[str] = frozenset()
    indent: int = 0
    keys: int = 1

    def __str__(self) -> str:
        lines = [tuple(self.head), *map(tuple, self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        sides = [">" if name in self.numbers else "<" for name in self.head]
        return "\n".join(
            " " * self.indent
            + "  ".join(
                f"{cell:{side}{width}}"
                for cell, side, width in zip(line, sides, widths, strict=True)
            ).rstrip()
            for line in lines
        )


class TextWithTables(str):
    """A text that knows its tables: a terminal draws them by its width, and all else is the text
    itself."""

    parts: tuple[str | TextTable, ...]

    @classmethod
    def of(cls, parts: Iterable[str | TextTable]) -> "TextWithTables":
        kept = tuple(parts)
        text = cls("\n".join(map(str, kept)))
        text.parts = kept
        return text


def cell(value: object) -> str:
    """A dash for what is unknown."""
    if value is None or value == "":
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
