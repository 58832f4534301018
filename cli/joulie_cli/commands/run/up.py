"""run all parts in one process group, for a real cluster or without one."""

import argparse
from pathlib import Path

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.cluster(parser)
    parser.add_argument(
        "--shadow",
        action="store_true",
        help="answer for pods that another scheduler places; read the cluster only",
    )
    parser.add_argument(
        "--for",
        dest="seconds",
        type=shared.seconds,
        metavar="TIME",
        help="stop after this time, such as 24h",
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="at the end write the report of this run"
    )


def program() -> Program:
    from joulie_cli.run import up

    return up
