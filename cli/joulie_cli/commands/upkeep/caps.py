"""measure what caps save: the energy of finished pods on capped nodes and on others."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("--from", dest="first", metavar="TIME", help="a time, or -10m (all)")
    parser.add_argument("--to", dest="last", metavar="TIME", help="a time, or -10m (now)")
    parser.add_argument(
        "--record", action="store_true", help="write it to the log, for caps_where_measured"
    )
    shared.archive(parser)


def program() -> Program:
    from joulie_cli.upkeep import caps

    return caps
