"""foretell where the pods of a manifest would be placed; writes nothing.

joulie place -f deployment.yaml
joulie place -f job.yaml --fail-if-pending
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_answers.schema.responses import Foretold
    from joulie_projections.component.wiring import Wiring

PENDING, UNSURE = 1, 3  # exit codes with --fail-if-pending


def options(parser: argparse.ArgumentParser) -> None:
    question(parser)
    parser.add_argument("-n", "--namespace", default="", metavar="NAME", help=NAMESPACE)
    shared.source(parser)


NAMESPACE = "of objects that name none (default)"


def question(parser: argparse.ArgumentParser) -> None:
    """Without where it is asked: `kubectl joulie` has other options for that."""
    shared.output(parser)
    parser.add_argument(
        "-f",
        "--filename",
        required=True,
        metavar="FILE",
        help="objects that make pods, as YAML or JSON (- is stdin)",
    )
    parser.add_argument(
        "--fail-if-pending",
        action="store_true",
        help="exit with 1 if a pod would wait, and with 3 if that is not known",
    )


def program() -> Program:
    from joulie_cli.asking.sources import settings_of_local_data

    return Program((), run, settings_of_local_data)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_cli.asking import questions
    from joulie_cli.asking.sources import answered
    from joulie_cli.display.output import show

    found = answered(args, wires, questions.place)
    show(args, found.document, found.text)
    return exit_code(args, found.document)  # type: ignore[arg-type]


def exit_code(args: argparse.Namespace, found: Foretold) -> int:
    if not args.fail_if_pending:
        return 0
    if found.pending:
        return PENDING
    return UNSURE if found.is_unsure else 0
