"""`joulie report`: one signed document of a period, as HTML or JSON."""

import argparse
import asyncio
import time

from joulie_bus.errors import SettingsError
from joulie_cli.display.progress import progress
from joulie_cli.display.times import time_of_period
from joulie_cli.log_access.past import ArchivePlace, archive_of
from joulie_cli.reporting.gather import Period
from joulie_cli.reporting.page import page_of
from joulie_cli.reporting.write import JSON_SUFFIX, as_json_text, report_of_period
from joulie_cli.wiring import Wiring

SETTINGS = (ArchivePlace,)
NS_PER_MS = 1_000_000


def run(args: argparse.Namespace, wires: Wiring) -> int:
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
    suffix, asked = "" if args.out is None else args.out.suffix, args.output == "json"
    if asked and suffix in (".html", ".htm"):
        why = "the name is that of a page, and JSON was asked for; name a file that ends in .json"
        raise SettingsError([f"--out={args.out}: {why}"])
    return asked or suffix == JSON_SUFFIX


def _period(args: argparse.Namespace) -> Period:
    now = time.time_ns()
    first = time_of_period(args.first, now) // NS_PER_MS if args.first else 0
    return Period(first, (time_of_period(args.last, now) if args.last else now) // NS_PER_MS)
