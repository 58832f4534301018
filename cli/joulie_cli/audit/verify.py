"""re-hash the decision log and check every link and signature.

joulie verify
joulie verify --from-entry 4000 --heads none
joulie verify --report november.json
"""

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
        help="how many witnesses must confirm the log (more than half); exit code 3 if fewer do",
    )
    parser.add_argument(
        "--policy",
        type=Path,
        metavar="FILE",
        help="ask the witnesses of this policy (C2SP tlog-policy) for its quorum",
    )
    shared.jobs(parser)
    shared.archive(parser)


def program() -> Program:
    from joulie_cli.audit import verification

    return Program(verification.SETTINGS, verification.run)
