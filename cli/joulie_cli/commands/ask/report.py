"""write a signed report of a period: energy, cost, carbon, and what was saved."""

import argparse
from pathlib import Path

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser, ("html", "json"))
    parser.add_argument("--from", dest="first", metavar="TIME", help="a time, or -10m (all)")
    parser.add_argument("--to", dest="last", metavar="TIME", help="a time, or -10m (now)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the file to write; .json: JSON (stdout)"
    )
    parser.add_argument("--unsigned", action="store_true", help="without the key of the log")
    shared.archive(parser)


def program() -> Program:
    from joulie_cli.ask import report

    return report
