"""Columns as wide as their widest cell."""

from collections.abc import Sequence, Set


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Set[str] = frozenset()
) -> list[str]:
    """`numbers` are the columns with numbers, which end under their title."""
    lines = [tuple(head), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = [">" if name in numbers else "<" for name in head]
    return [
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(line, sides, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


def cell(value: object) -> str:
    """A dash for what is unknown."""
    if value is None or value == "":
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
