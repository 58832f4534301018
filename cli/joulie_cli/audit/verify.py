"""re-hash the decision log and check every link and signature."""

import argparse
from pathlib import Path

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    shared.span(parser, "entry")
    parser.add_argument(
        "--heads",
        default="stream",
        metavar="PLACE",
        help="anchored heads from a file or a place of HEADS_TO, or none (stream)",
    )
    parser.add_argument(
        "--key",
        type=Path,
        metavar="FILE",
        help="public key or ring of keys (head.pub of the data directory)",
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="compute this report of `joulie report` again"
    )
    parser.add_argument(
        "--witness",
        action="append",
        default=[],
        metavar="KEY@URL",
        help="ask this witness, too (WITNESSES)",
    )
    parser.add_argument(
        "--quorum",
        type=shared.count,
        default=0,
        metavar="N",
        help="how many witnesses must confirm the log (more than half)",
    )
    shared.jobs(parser)
    shared.archive(parser)


def program() -> Program:
    from joulie_cli.audit import verification

    return Program(verification.SETTINGS, verification.run)
