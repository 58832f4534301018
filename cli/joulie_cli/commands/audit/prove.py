"""print a proof that an entry is in the log, verifiable without Joulie."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("position", type=shared.count, metavar="ENTRY", help="number of the entry")
    shared.archive(parser)


def program() -> Program:
    from joulie_cli.audit import prove

    return prove
