"""fold all facts into a new generation of rows, then switch to it."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("--from-snapshot", action="store_true", help="not from the first fact")
    shared.archive(parser)


def program() -> Program:
    from joulie_cli.admin import rebuild

    return rebuild
