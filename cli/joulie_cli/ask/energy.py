"""show the energy of nodes, cards, pods and plans in a period, from the ledger."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_projections.component.wiring import Wiring

BY = ("namespace", "workload", "node", "plan", "pod", "card")


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser, ("table", "json", "yaml", "csv", "opencost"))
    parser.add_argument("--by", choices=BY, default="namespace", help="namespace")
    parser.add_argument("--from", dest="first", metavar="TIME", help="a time, or -10m (all)")
    parser.add_argument("--to", dest="last", metavar="TIME", help="a time, or -10m (now)")
    shared.shorthand(parser, "csv")
    shared.shorthand(parser, "opencost")
    shared.server(parser)
    parser.set_defaults(archive=None)  # the ledger is in the database alone


def program() -> Program:
    from joulie_cli.asking.sources import SETTINGS

    return Program(SETTINGS, run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_cli.asking import questions
    from joulie_cli.asking.sources import asked

    questions.period_of(args, time.time_ns())  # what cannot be asked is reported before the data
    return asked(args, wires, questions.energy)
