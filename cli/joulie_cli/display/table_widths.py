"""The widths of columns on a terminal. Between words a text continues in the next line; a number is
broken last."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from joulie_answers.text.tables import TextTable

GAP = 2
# Characters: to these a column is narrowed by breaking words. A name of a row is rather kept.
NARROW, NARROW_KEY = 8, 16
WORD = re.compile(r"^\s*\S+|\S+")


class Widths(NamedTuple):
    """Of one column."""

    natural: int
    of_words: int  # neither words nor numbers with their unit are broken
    least: int  # words are broken, and numbers are not


def fitted(table: TextTable, room: int) -> list[int]:
    """As wide as the cells where there is room; else the widest columns are narrowed first."""
    columns = _columns(table)
    widths = [column.natural for column in columns]
    _narrow(widths, [column.of_words for column in columns], room)
    _narrow(widths, [column.least for column in columns], room)
    return widths


def _narrow(widths: list[int], floors: Sequence[int], room: int) -> None:
    while _total(widths) > room:
        wide = [at for at, width in enumerate(widths) if width > floors[at]]
        if not wide:
            return
        widths[max(wide, key=widths.__getitem__)] -= 1


def parts_of(table: TextTable, room: int) -> Iterator[TextTable]:
    """The table itself, or several that have its columns one after another and each begin with
    those that name the row."""
    columns = _columns(table)
    if _total(column.least for column in columns) <= room:
        yield table
        return
    keys = [*range(min(table.keys, len(columns)))]
    shown = keys
    for at in range(len(keys), len(columns)):
        if shown != keys and _total(columns[each].of_words for each in [*shown, at]) > room:
            yield _part(table, shown)
            shown = keys
        shown = [*shown, at]
    yield _part(table, shown)


def _part(table: TextTable, columns: Sequence[int]) -> TextTable:
    head, *rows = ([line[at] for at in columns] for line in (table.head, *table.rows))
    return table._replace(head=head, rows=rows)


def _total(widths: Iterable[int]) -> int:
    return sum(width + GAP for width in widths) - GAP


def _columns(table: TextTable) -> list[Widths]:
    lines = zip(table.head, *table.rows, strict=True)
    return [
        _of_numbers(head, cells)
        if head in table.numbers
        else _of_words(head, cells, NARROW_KEY if at < table.keys else NARROW)
        for at, (head, *cells) in enumerate(lines)
    ]


def _of_numbers(head: str, cells: Sequence[str]) -> Widths:
    whole = max(_longest_word(head), *map(len, cells), 0)
    return Widths(max(len(head), whole), whole, whole)


def _of_words(head: str, cells: Sequence[str], narrow: int) -> Widths:
    natural, word = (max(map(measure, (head, *cells))) for measure in (len, _longest_word))
    return Widths(natural, word, min(word, narrow))


def _longest_word(text: str) -> int:
    """With the spaces before the first."""
    return max(map(len, WORD.findall(text)), default=0)
