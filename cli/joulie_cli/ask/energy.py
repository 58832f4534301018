"""show the energy of nodes, cards, pods and plans in a period, from the ledger.

joulie energy --from -24h
joulie energy --by node --from 2026-11-01 --to 2026-12-01 -o csv
"""

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
    shared.period(parser)
    shared.server(parser)
    parser.set_defaults(archive=None)  # the ledger is in the database alone


def program() -> Program:
    from joulie_cli.asking.sources import settings_of_local_data

    return Program((), run, settings_of_local_data)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_cli.asking import questions
    from joulie_cli.asking.sources import asked

    questions.energy_of_period(
        args, time.time_ns()
    )  # what cannot be asked is reported before the data
    return asked(args, wires, questions.energy)
