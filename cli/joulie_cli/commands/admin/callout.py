"""authenticate agents at the broker by the tokens of their pods."""

import argparse
from pathlib import Path

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

ACCOUNT, AUDIENCE = "joulie-system:joulie-agent", "joulie-broker"


def options(parser: argparse.ArgumentParser) -> None:
    shared.cluster(parser)
    parser.add_argument(
        "--issuer",
        type=Path,
        required=True,
        metavar="FILE",
        help="nkey seed (SA...) of the issuer in the broker's configuration",
    )
    parser.add_argument(
        "--account",
        default=ACCOUNT,
        metavar="NAMESPACE:NAME",
        help=f"the service account of the agents ({ACCOUNT})",
    )
    parser.add_argument(
        "--audience", default=AUDIENCE, metavar="TEXT", help=f"of their tokens ({AUDIENCE})"
    )


def program() -> Program:
    from joulie_cli.admin import callout

    return callout
