"""show running parts, their positions and their addresses."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    shared.server(parser)


def program() -> Program:
    from joulie_cli.ask import status

    return status
