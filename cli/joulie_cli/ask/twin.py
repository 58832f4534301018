"""show the twin of a node, now or at an earlier position.

joulie twin node-17
joulie twin node-17 --at -10m --history
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("node", metavar="NODE")
    parser.add_argument("--at", metavar="WHEN", help="a position, a time, or -10m (now)")
    parser.add_argument(
        "--history", action="store_true", help="list the changes that plans made, with reasons"
    )
    shared.source(parser)


def program() -> Program:
    from joulie_cli.asking.sources import settings_of_local_data

    return Program((), run, settings_of_local_data)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_cli.asking import questions
    from joulie_cli.asking.sources import asked

    questions.moment(args.at, time.time_ns())  # what cannot be asked is reported before the data
    return asked(args, wires, questions.node)
