"""ask the log, its archive and the ledger with SQL.

joulie sql
joulie sql "SELECT kind, count(*) FROM decisions GROUP BY kind"
joulie sql -o csv "FROM pod_lives WHERE waited_s >= 60 ORDER BY waited_s DESC"
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from collections.abc import Collection

    from joulie_audit.sql.files import Files
    from joulie_audit.sql.rows import Rows
    from joulie_projections.component.wiring import Wiring

ROWS, MEMORY_MIB, TIMEOUT_S = 10_000, 1024, 300


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "query",
        nargs="?",
        metavar="QUERY",
        help="one SELECT; - reads it from the input; without one, the tables are listed",
    )
    shared.output(parser, ("table", "csv", "json", "yaml"))
    parser.add_argument(
        "--rows", type=shared.count, default=ROWS, metavar="N", help=f"at most so many ({ROWS})"
    )
    parser.add_argument(
        "--memory",
        type=shared.count,
        default=MEMORY_MIB,
        metavar="MIB",
        help=f"of the query; beyond it, files are used ({MEMORY_MIB})",
    )
    parser.add_argument(
        "--timeout",
        type=shared.count,
        default=TIMEOUT_S,
        metavar="S",
        help=f"of the query ({TIMEOUT_S})",
    )
    shared.archive(parser)


def program() -> Program:
    from joulie_audit.access.past import ArchivePlace

    return Program((ArchivePlace,), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio
    import tempfile
    from pathlib import Path

    from joulie_answers.text.sql import listed_tables, rows_as_text
    from joulie_audit.sql import session
    from joulie_audit.sql.files import Files
    from joulie_cli.display.output import print_text, show

    if args.query is None:
        print_text(listed_tables())
        return 0
    query = sys.stdin.read() if args.query == "-" else args.query
    tables = session.tables_of(query)
    with tempfile.TemporaryDirectory(prefix="joulie-sql-") as place:
        files = Files(tables, Path(place))
        asyncio.run(_gather(args, wires, files, tables))
        limits = session.Limits(args.rows, args.memory, args.timeout)
        rows = session.answered(query, files.by_table, Path(place), limits)
    if args.output == "csv":
        print(_as_csv(rows), end="")
    else:
        show(args, rows._asdict(), rows_as_text(rows))
    if files.lost:
        what = "messages left their stream before they were archived: they are in no answer"
        print(f"joulie sql: {files.lost} {what}", file=sys.stderr)
    if rows.more:
        print(f"joulie sql: more than {args.rows} rows; --rows gives more", file=sys.stderr)
    return 0


async def _gather(
    args: argparse.Namespace, wires: Wiring, files: Files, tables: Collection[str]
) -> None:
    from joulie_audit.access.past import archive_of, facts_of
    from joulie_audit.archive.parts import Archive
    from joulie_audit.sql.files import needs_log
    from joulie_cli.display.progress import progress

    archive = archive_of(args, wires)
    if archive is not None:
        files.add_archive(Archive.of(archive))
    if args.archive is not None and not wires.data.has_database:
        print(f"joulie sql: {args.archive} alone: there is no database", file=sys.stderr)
    else:
        if needs_log(tables):
            with progress("sql", args.output != "table") as report:
                async with facts_of(wires, archive) as (history, facts):
                    await files.add_log(history, facts, report)
        _add_ledger(wires, files, tables)
    _add_words(files)


def _add_ledger(wires: Wiring, files: Files, tables: Collection[str]) -> None:
    from joulie_audit.sql.energy_rows import KINDS_OF_ROWS, energy_tables
    from joulie_audit.sql.views import OF_LEDGER
    from joulie_bus.events.bounds import LARGEST
    from joulie_projections.store.energy_table import EnergyTable

    if not any(table.name in tables for table in OF_LEDGER):
        return
    with EnergyTable.readable(wires.data.database) as ledger:
        found = ledger.reading(0, LARGEST, KINDS_OF_ROWS)
    files.add(energy_tables(found[0] if found else ()))


def _add_words(files: Files) -> None:
    from joulie_audit.sql.views import VERDICTS
    from joulie_extender.catalogue.rules import codes, few_words_of

    rows = ((code, few_words_of(code)) for code in codes())
    files.add({VERDICTS.name: VERDICTS.filled(rows)})


def _as_csv(rows: Rows) -> str:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(rows.columns)
    writer.writerows(rows.rows)
    return text.getvalue()
