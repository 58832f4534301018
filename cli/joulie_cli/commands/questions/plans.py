"""list the operator's plans and their reasons."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    shared.newest(parser)
    parser.add_argument("--all", action="store_true", help="include plans without changes")
    shared.archive(parser)


def program() -> Program:
    from joulie_cli.questions import plans

    return plans
