"""measure what caps save, by the energy of finished pods; or give the limits of this node back."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument(
        "what",
        nargs="?",
        choices=("measure", "release"),
        default="measure",
        metavar="measure|release",
        help="release: give back the limits that `joulie agent --caps` set on this node (measure)",
    )
    shared.limits_of_node(parser)
    parser.add_argument("--from", dest="first", metavar="TIME", help="a time, or -10m (all)")
    parser.add_argument("--to", dest="last", metavar="TIME", help="a time, or -10m (now)")
    parser.add_argument(
        "--record", action="store_true", help="write it to the log, for caps_where_measured"
    )
    shared.archive(parser)


def program() -> Program:
    from joulie_cli.admin import caps

    return caps
