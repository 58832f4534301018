"""recompute past decisions with other settings; changes nothing."""

import argparse
from pathlib import Path

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change a setting"
    )
    parser.add_argument("--policy", metavar="NAME", help="change the operator's policy")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot the differences (SVG)")
    shared.span(parser, "position")
    shared.archive(parser)


def program() -> Program:
    from joulie_cli.ask import whatif

    return whatif
