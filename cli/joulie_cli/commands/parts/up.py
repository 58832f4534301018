"""run all parts in one process group, for a real cluster or without one."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.cluster(parser)


def program() -> Program:
    from joulie_cli.parts import up

    return up
