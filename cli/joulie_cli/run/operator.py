"""assign power profiles to nodes."""

import argparse
from pathlib import Path

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.cluster(parser)
    parser.add_argument(
        "--shadow", action="store_true", help="read the cluster only: no Lease, no writes"
    )
    parser.add_argument(
        "--executors", type=Path, metavar="FILE", help="how to switch nodes off and on (TOML)"
    )


def program() -> Program:
    from joulie_operator import component as operator

    return Program(operator.SETTINGS, operator.run)
