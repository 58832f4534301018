"""write a signed report of a period: energy, cost, carbon, and what was saved."""

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
    from joulie.client.console import ConsoleClient
    from joulie_answers.report.document import Document
    from joulie_answers.report.gather import Period
    from joulie_projections.component.wiring import Wiring

NOT_SIGNED = (
    "The report is not signed: the console cannot read the key of the log. `joulie report` where "
    "the key is signs it."
)


def options(parser: argparse.ArgumentParser) -> None:
    question(parser)
    shared.source(parser)


def question(parser: argparse.ArgumentParser) -> None:
    shared.output(parser, ("html", "json"))
    parser.add_argument("--from", dest="first", metavar="TIME", help="a time, or -10m (all)")
    parser.add_argument("--to", dest="last", metavar="TIME", help="a time, or -10m (now)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the file to write; .json: JSON (stdout)"
    )
    parser.add_argument("--unsigned", action="store_true", help="without the key of the log")


def program() -> Program:
    from joulie_audit.access.past import ArchivePlace

    return Program((ArchivePlace,), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_cli.display.progress import progress

    require_form(args)
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
    from joulie_answers.report.page import page_of
    from joulie_answers.report.write import as_json_text

    text = as_json_text(document) if require_form(args) == "json" else page_of(document)
    if args.out is None:
        print(text)
        return
    args.out.write_text(text)
    hint = f" Check it with `joulie verify --report {args.out}`." if "signature" in document else ""
    print(f"Wrote {args.out}.{hint}")


def require_form(args: argparse.Namespace) -> str:
    """`json` or `html`. The name of the file decides, as for `joulie up --report`."""
    from joulie_answers.report.write import JSON_SUFFIX
    from joulie_bus.errors import SettingsError

    suffix, asked = "" if args.out is None else args.out.suffix, args.output == "json"
    if asked and suffix in (".html", ".htm"):
        why = "the name is that of a page, and JSON was asked for; name a file that ends in .json"
        raise SettingsError([f"--out={args.out}: {why}"])
    return "json" if asked or suffix == JSON_SUFFIX else "html"


def _period(args: argparse.Namespace) -> Period:
    from joulie_answers.report.gather import Period
    from joulie_cli.display.times import time_of_period

    now = time.time_ns()
    first = time_of_period(args.first, now) // MS if args.first else 0
    return Period(first, (time_of_period(args.last, now) if args.last else now) // MS)
