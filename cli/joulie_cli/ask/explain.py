"""explain why a pod is where it is; also `explain node NAME`, `explain plan ID`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    question(parser)
    shared.source(parser)


def question(parser: argparse.ArgumentParser) -> None:
    """Without where it is asked: `kubectl joulie` has other options for that."""
    shared.output(parser)
    parser.add_argument(
        "what", nargs="+", metavar="POD", help="namespace/name, uid; node NAME; plan ID|POSITION"
    )
    parser.add_argument("--node", metavar="NAME", help="also show the terms of this candidate")


UNNAMED = {
    "node": "`joulie explain node NAME` explains a node",
    "plan": "`joulie explain plan ID` explains a plan, and `joulie plans` lists them",
}


def program() -> Program:
    from joulie_cli.asking.sources import SETTINGS

    return Program(SETTINGS, run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_bus.errors import NotInTheLog
    from joulie_cli.asking import questions
    from joulie_cli.asking.sources import asked

    match args.what:
        case ["node", _]:
            return asked(args, wires, questions.node_changes)
        case ["plan", _]:
            return asked(args, wires, questions.plan)
        case ["node" | "plan" as what]:
            raise NotInTheLog(
                f"Nothing to explain. {UNNAMED[what]}. A pod of this name is `explain pod {what}`."
            )
        case [pod] | ["pod", pod]:
            args.what = [pod]
            return asked(args, wires, questions.pod)
        case _:
            raise NotInTheLog(
                "Nothing to explain. Give a pod (namespace/name or uid), `node NAME` or `plan ID`."
            )
