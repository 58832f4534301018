"""write a signed report of a period: energy, cost, carbon, and what was saved.

joulie report --from -24h --out day.html
joulie report --from 2026-11-01 --to 2026-12-01 --out november.json
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from joulie_bus.core.times import MS
from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from joulie.client.console import ConsoleClient
    from joulie_answers.report.form import Document, Period
    from joulie_projections.component.wiring import Wiring

NOT_SIGNED = (
    "The report is not signed: the console cannot read the key of the log. `joulie report` where "
    "the key is signs it."
)


FORMS = ("text", "html", "json")
PAGE_HINT = (
    "`--out FILE` writes the page, with charts, all divisions and the signature; `--out FILE.json` "
    "its\nJSON, which `joulie verify --report` checks."
)


def options(parser: argparse.ArgumentParser) -> None:
    question(parser)
    shared.source(parser)


def question(parser: argparse.ArgumentParser) -> None:
    shared.output(parser, FORMS)
    shared.period(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="a file for the page; .json: JSON (stdout)"
    )
    parser.add_argument("--unsigned", action="store_true", help="without the key of the log")


def program() -> Program:
    return Program((), run, _settings_of_local_data)


def _settings_of_local_data() -> Sequence[type]:
    from joulie_audit.access.past import ArchivePlace

    return (ArchivePlace,)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_cli.display.output import require_writable
    from joulie_cli.display.progress import progress

    require_form(args)
    require_writable("--out", args.out)
    _period(args)  # an error comes before the data are read
    with progress("report", quiet=False):
        document = asyncio.run(_over_http(args) if args.server else _computed(args, wires))
    write(args, document)
    return 0


async def _computed(args: argparse.Namespace, wires: Wiring) -> Document:
    from joulie_answers.report.write import report_of_period
    from joulie_audit.access.past import archive_of

    archive, period = archive_of(args, wires), _period(args)
    return await report_of_period(wires, archive, period, signs=not args.unsigned)


async def _over_http(args: argparse.Namespace) -> Document:
    from joulie_cli.asking.sources import console_of

    async with console_of(args) as console:
        return await served(console, args)


async def served(console: ConsoleClient, args: argparse.Namespace) -> Document:
    from joulie_answers.schema.requests import Report
    from joulie_cli.display.times import instant

    period = _period(args)
    query = Report(since=instant(period.from_ms * MS), until=instant(period.to_ms * MS))
    found = await console.report(query)
    if args.unsigned:
        found.report.pop("signature", None)
    elif not found.signed:
        print(NOT_SIGNED, file=sys.stderr)
    return found.report


def write(args: argparse.Namespace, document: Document) -> None:
    from joulie_answers.report.form import as_json_text
    from joulie_answers.report.words import text_of
    from joulie_answers.text.tables import TextWithTables
    from joulie_cli.display.output import print_text
    from joulie_cli.display.output import write as write_file

    form = require_form(args)
    if form == "text":
        print_text(TextWithTables.of([*text_of(document).parts, PAGE_HINT]))
        return
    text = as_json_text(document) if form == "json" else _page(document)
    if args.out is None:
        print(text)
        return
    write_file("--out", args.out, text)
    hint = f" Check it with `joulie verify --report {args.out}`." if "signature" in document else ""
    print(f"Wrote {args.out}.{hint}")


def _page(document: Document) -> str:
    from joulie_answers.report.page import page_of

    return page_of(document)


def require_form(args: argparse.Namespace) -> str:
    """`text`, `json` or `html`. A file holds the page or JSON: its name decides, as for
    `joulie up --report`."""
    from joulie_answers.report.form import JSON_SUFFIX
    from joulie_bus.errors import SettingsError

    if args.out is None:
        form: str = args.output
        return form
    suffix, is_asked = args.out.suffix, args.output == "json"
    if is_asked and suffix in (".html", ".htm"):
        why = "the name is that of a page, and JSON was asked for; name a file that ends in .json"
        raise SettingsError([f"--out={args.out}: {why}"])
    return "json" if is_asked or suffix == JSON_SUFFIX else "html"


def _period(args: argparse.Namespace) -> Period:
    from joulie_answers.report.form import Period
    from joulie_cli.display.times import period_of

    return Period(*(each // MS for each in period_of(args, time.time_ns())))
