"""publish the facts of a simulated cluster.

joulie simulator --nodes 200 --speed 60
"""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.simulated_cluster(parser)


def program() -> Program:
    from joulie_simulator import component as simulator

    return Program(simulator.SETTINGS, simulator.run)
