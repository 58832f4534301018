"""explain why a pod is where it is; also `explain node NAME`, `explain plan ID`.

joulie explain team-a/train-0
joulie explain team-a/train-0 --node node-17
joulie explain node node-17
joulie explain plan p128
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_cli.asking.questions import Question
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
    parser.add_argument("--node", metavar="NODE", help="also show the terms of this candidate")


UNNAMED = {
    "node": "`joulie explain node NAME` explains a node",
    "plan": "`joulie explain plan ID` explains a plan, and `joulie plans` lists them",
}


def program() -> Program:
    from joulie_cli.asking.sources import settings_of_local_data

    return Program((), run, settings_of_local_data)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_cli.asking.sources import asked

    return asked(args, wires, question_of(args))


def question_of(args: argparse.Namespace) -> Question:
    """About a pod, a node or a plan. Raises NotInTheLog if none is named."""
    from joulie_bus.errors import NotInTheLog
    from joulie_cli.asking import questions

    match args.what:
        case ["node", _]:
            return questions.node_changes
        case ["plan", _]:
            return questions.plan
        case ["node" | "plan" as what]:
            raise NotInTheLog(
                f"Nothing was explained. {UNNAMED[what]}. A pod of this name is "
                f"`explain pod {what}`."
            )
        case [pod] | ["pod", pod]:
            args.what = [pod]
            return questions.pod
        case _:
            raise NotInTheLog(
                "Nothing was explained. Give a pod (namespace/name or uid), `node NAME` or "
                "`plan ID`."
            )
