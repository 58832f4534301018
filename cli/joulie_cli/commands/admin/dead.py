"""list, show and retry messages that could not be folded."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

ACTIONS = ("list", "show", "retry")


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="list", help="list")
    parser.add_argument(
        "position", type=int, nargs="?", help="position of the message to show or retry"
    )
    shared.archive(parser)


def program() -> Program:
    from joulie_cli.admin import dead

    return dead
