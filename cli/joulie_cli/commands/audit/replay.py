"""fold all facts again and recompute every decision and plan."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    shared.span(parser, "position")
    parser.add_argument(
        "--sample", type=shared.count, default=0, metavar="N", help="only N decisions"
    )
    shared.jobs(parser)
    shared.archive(parser)


def program() -> Program:
    from joulie_cli.audit import replay

    return replay
