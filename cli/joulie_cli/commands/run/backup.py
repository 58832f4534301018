"""write a backup: facts, decisions, heads and the public key, read back and compared."""

import argparse
from pathlib import Path

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument(
        "--to", type=Path, required=True, metavar="DIR", help="an earlier backup there is extended"
    )


def program() -> Program:
    from joulie_cli.run import backup

    return backup
