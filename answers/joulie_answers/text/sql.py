"""The rows of a query, and what a query can name, as text."""

from datetime import datetime

from joulie_answers.text.tables import TextTable, TextWithTables
from joulie_audit.sql.rows import Rows
from joulie_audit.sql.views import STORED, VIEWS

LONGEST_CELL = 200


def rows_as_text(found: Rows) -> TextWithTables:
    lines = [tuple(map(_cell, row)) for row in found.rows]
    numbers = {
        name
        for place, name in enumerate(found.columns)
        if any(isinstance(row[place], int | float) for row in found.rows)
    }
    return TextWithTables.of([TextTable(found.columns, lines, numbers)])


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.6g}"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03d}"
        case _:
            text = str(value)
            return text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}..."


def listed_tables() -> TextWithTables:
    rows = [
        (table.name, table.of, ", ".join(column.name for column in table.columns))
        for table in STORED
    ]
    rows += [(view.name, view.of, f"of {' and '.join(view.needs)}") for view in VIEWS]
    return TextWithTables.of(
        [
            TextTable(("TABLE", "A ROW IS", "COLUMNS"), rows),
            '\nAsk: joulie sql "SELECT kind, count(*) FROM decisions GROUP BY kind"',
        ]
    )
