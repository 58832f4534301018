"""re-hash the decision log and check every link and signature.

joulie verify
joulie verify --from-entry 4000 --heads none
joulie verify --archive /srv/joulie-archive --day 2026-11-21
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
    _witnesses(parser)
    shared.jobs(parser)
    shared.archive(parser)
    shared.day(parser, "archive: only the parts of this day (UTC), without a database")
    parser.add_argument(
        "--sum",
        metavar="FILE",
        help="join the results of single days (JSON, one after the other; - for the input)",
    )


def _witnesses(parser: argparse.ArgumentParser) -> None:
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


def program() -> Program:
    from joulie_cli.audit import verification

    return Program(verification.SETTINGS, verification.run)
