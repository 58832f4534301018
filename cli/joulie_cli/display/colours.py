"""Colours for the text of a command on a terminal, and tables by its width. The rest of the text
stays as it is."""

import sys
from collections.abc import Sequence
from typing import ClassVar

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from joulie_answers.text.tables import TextTable, TextWithTables

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
        r"(?m)^ +(?P<best>\*[\w.-]+)",  # the best candidate
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
            console.print(drawn(part))
        else:
            console.print(coloured(part), soft_wrap=True)


def drawn(table: TextTable) -> Padding:
    """Columns are as narrow as the terminal needs; what does not fit continues in the next line."""
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="joulie.head")
    for name in table.head:
        found.add_column(
            Text(name), justify="right" if name in table.numbers else "left", overflow="fold"
        )
    for row in table.rows:
        found.add_row(*map(coloured, row))
    return Padding(found, (0, 0, 0, table.indent), expand=False)
