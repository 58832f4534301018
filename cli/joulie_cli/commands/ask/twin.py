"""show the twin of a node, now or at an earlier position."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("node", metavar="NODE")
    parser.add_argument("--at", metavar="WHEN", help="a position, a time, or -10m (now)")
    parser.add_argument(
        "--history", action="store_true", help="list the changes that plans made, with reasons"
    )
    shared.source(parser)


def program() -> Program:
    from joulie_cli.ask import twin

    return twin
