"""follow the log and keep the ledger of energy.

joulie ledger
joulie ledger --once
"""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="end when it has caught up")
    parser.add_argument(
        "--rebuild", action="store_true", help="delete it, and fold it from the first fact, once"
    )
    shared.archive(parser)


def program() -> Program:
    from joulie_audit.ledger import component as ledger

    return Program(ledger.SETTINGS, ledger.run)
