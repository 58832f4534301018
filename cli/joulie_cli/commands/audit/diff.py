"""prove that the log was only appended to between two signed heads."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    for name in ("one", "other"):
        parser.add_argument(
            name, metavar="HEAD", help="a file with a head, or the number of its entry"
        )
    shared.archive(parser)


def program() -> Program:
    from joulie_cli.audit import diff

    return diff
