"""assign power profiles to nodes."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.cluster(parser)


def program() -> Program:
    from joulie_cli.parts import operator

    return operator
