"""Colours for the text of a command on a terminal, and tables by its width. The rest of the text
stays as it is."""

import sys
from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from joulie_answers.text.tables import TextTable, TextWithTables
from joulie_cli.display.table_widths import fitted, parts_of

STYLES = {
    "joulie.stale": "bold red",
    "joulie.warning": "yellow",
    "joulie.head": "bold",
    "joulie.best": "green",
    "joulie.good": "green",
}


class Lines(RegexHighlighter):
    base_style = "joulie."
    highlights: ClassVar[Sequence[str]] = [
        r"(?m)^(?P<stale>STALE .*|  \S+ +down\b.*)$",
        r"(?m)^(?P<warning>IDLE: .*|Incomplete: .*)$",
        r"(?m)^ *(?P<best>\*[\w.-]+)",  # the best candidate
        r"(?P<good>no mismatches)",
    ]


def coloured(text: str) -> Text:
    found = Text(text)
    Lines().highlight(found)
    return found


def print_coloured(text: str) -> None:
    """Lines are not wrapped, and tables are."""
    console = Console(file=sys.stdout, theme=Theme(STYLES), highlight=False)
    for part in text.parts if isinstance(text, TextWithTables) else (text,):
        if isinstance(part, TextTable):
            for drawing in drawn(part, console.width):
                console.print(drawing)
        else:
            console.print(coloured(part), soft_wrap=True)


def drawn(table: TextTable, width: int) -> Iterator[Padding]:
    """What does not fit into its column continues in the next line, and columns that do not fit
    beside the others follow below."""
    for part in parts_of(table, width - table.indent):
        yield Padding(_grid(part, width), (0, 0, 0, table.indent), expand=False)


def _grid(table: TextTable, width: int) -> Table:
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="joulie.head")
    widths = fitted(table, width - table.indent)
    for name, room in zip(table.head, widths, strict=True):
        found.add_column(
            Text(name),
            width=room,
            justify="right" if name in table.numbers else "left",
            overflow="fold",
        )
    for row in table.rows:
        found.add_row(*map(coloured, row))
    return found
