"""restore a backup into an empty database, as it was at any time."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_cli.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument(
        "--from", dest="source", type=Path, required=True, metavar="DIR", help="a backup or archive"
    )
    parser.add_argument("--at", metavar="TIME", help="what was committed and signed by then")


def program() -> Program:
    return Program((), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_answers.text.times import shown
    from joulie_audit.archive.restore import NEVER
    from joulie_bus.errors import NotInTheLog
    from joulie_cli.components.archive import restore_from
    from joulie_cli.display.times import MS, time_of_period

    now = time.time_ns()
    until = NEVER if args.at is None else time_of_period(args.at, now)
    if args.at is not None and until > now:
        raise NotInTheLog(f"{shown(until // MS)} is in the future. Nothing was restored.")
    return restore_from(args.source, args, wires, until)
