"""show what pods use of what they request, and which requests would be enough.

joulie requests
joulie requests --namespace team-a -o json
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_projections.component.wiring import Wiring

LEAST_HOURS = 24.0
KEPT_HOURS = 14 * 24  # by the ledger


def hours(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= KEPT_HOURS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {KEPT_HOURS}")
    return found


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument(
        "-n", "--namespace", metavar="NAME", help="only workloads of this namespace"
    )
    parser.add_argument(
        "--least-hours",
        type=hours,
        default=LEAST_HOURS,
        metavar="HOURS",
        help="no recommendation for a workload that is known for less time (24)",
    )
    shared.server(parser)
    parser.set_defaults(archive=None)  # the ledger is in the database alone


def program() -> Program:
    from joulie_cli.asking.sources import settings_of_local_data

    return Program((), run, settings_of_local_data)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_cli.asking import questions
    from joulie_cli.asking.sources import asked

    return asked(args, wires, questions.requests)
