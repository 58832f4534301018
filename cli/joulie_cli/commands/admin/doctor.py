"""check an installation; exit code 0 for no fault, 1 for warnings, 2 for failures."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    shared.cluster(parser)
    parser.add_argument("--namespace", metavar="NAME", help="of the installation (joulie-system)")
    parser.add_argument(
        "--certificates", metavar="DIR", help="check the *.crt there, instead of the TLS Secrets"
    )
    parser.add_argument("--accept-warnings", action="store_true", help="exit with 0 for warnings")
    parser.add_argument("--settings", action="store_true", help="also list settings with defaults")


def program() -> Program:
    from joulie_cli.doctor import command

    return command
