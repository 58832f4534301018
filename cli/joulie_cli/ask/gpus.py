"""show GPU cards, the pods that use them and their free memory.

joulie gpus
joulie gpus --free --model H100
"""

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
    parser.add_argument("--node", metavar="NODE", help="cards of this node")
    parser.add_argument(
        "--model", metavar="NAME", help="cards of this model, as in a pod's annotation"
    )
    parser.add_argument(
        "--pod", metavar="POD", help="cards of this pod: uid, name or namespace/name"
    )
    parser.add_argument("--free", action="store_true", help="only healthy cards with free memory")


def program() -> Program:
    from joulie_cli.asking.sources import settings_of_local_data

    return Program((), run, settings_of_local_data)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_cli.asking import questions
    from joulie_cli.asking.sources import asked

    return asked(args, wires, questions.gpus)
