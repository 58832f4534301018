"""restore a backup into an empty database, as it was at any time."""

import argparse
from pathlib import Path

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument(
        "--from", dest="source", type=Path, required=True, metavar="DIR", help="a backup or archive"
    )
    parser.add_argument("--at", metavar="TIME", help="what was committed and signed by then")


def program() -> Program:
    from joulie_cli.run import restore

    return restore
