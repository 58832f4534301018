"""explain why a pod is where it is; also `explain node NAME`, `explain plan ID`."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


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


def program() -> Program:
    from joulie_cli.ask import explain

    return explain
