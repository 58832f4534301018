"""write a signed report of a period: energy, cost, carbon, and what was saved."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from joulie_bus.core.times import MS
from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_answers.report.gather import Period
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser, ("html", "json"))
    parser.add_argument("--from", dest="first", metavar="TIME", help="a time, or -10m (all)")
    parser.add_argument("--to", dest="last", metavar="TIME", help="a time, or -10m (now)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the file to write; .json: JSON (stdout)"
    )
    parser.add_argument("--unsigned", action="store_true", help="without the key of the log")
    shared.archive(parser)


def program() -> Program:
    from joulie_audit.access.past import ArchivePlace

    return Program((ArchivePlace,), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_answers.report.page import page_of
    from joulie_answers.report.write import as_json_text, report_of_period
    from joulie_audit.access.past import archive_of
    from joulie_cli.display.progress import progress

    archive, period, is_json = archive_of(args, wires), _period(args), _is_json(args)
    with progress("report", quiet=False):
        document = asyncio.run(report_of_period(wires, archive, period, signs=not args.unsigned))
    text = as_json_text(document) if is_json else page_of(document)
    if args.out is None:
        print(text)
    else:
        args.out.write_text(text)
        print(f"Wrote {args.out}. Check it with `joulie verify --report {args.out}`.")
    return 0


def _is_json(args: argparse.Namespace) -> bool:
    """The name of the file decides, as for `joulie up --report`."""
    from joulie_answers.report.write import JSON_SUFFIX
    from joulie_bus.errors import SettingsError

    suffix, asked = "" if args.out is None else args.out.suffix, args.output == "json"
    if asked and suffix in (".html", ".htm"):
        why = "the name is that of a page, and JSON was asked for; name a file that ends in .json"
        raise SettingsError([f"--out={args.out}: {why}"])
    return asked or suffix == JSON_SUFFIX


def _period(args: argparse.Namespace) -> Period:
    from joulie_answers.report.gather import Period
    from joulie_cli.display.times import time_of_period

    now = time.time_ns()
    first = time_of_period(args.first, now) // MS if args.first else 0
    return Period(first, (time_of_period(args.last, now) if args.last else now) // MS)
