"""list, rotate, retire and replace the keys that sign the log."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

ACTIONS = ("list", "rotate", "retire", "replace")


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="list", help="list")
    parser.add_argument(
        "key",
        nargs="?",
        metavar="KEY",
        help="number of the key to retire, or id of a lost key that this one replaces",
    )
    parser.add_argument(
        "--compromised-since", metavar="WHEN", help="an entry, a time, or -10m; valid before"
    )
    parser.add_argument(
        "--wait",
        type=shared.seconds,
        default=20.0,
        metavar="TIME",
        help="wait for the projector (20s)",
    )


def program() -> Program:
    from joulie_cli.admin import keys

    return keys
