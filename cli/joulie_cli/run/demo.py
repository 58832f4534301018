"""run all parts over a simulated cluster, without Kubernetes.

joulie demo
joulie demo --nodes 5000
joulie demo --for 5m --headless -o json
"""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    shared.simulated_cluster(parser)
    parser.add_argument("--headless", action="store_true", help="no live screen")
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--compare",
        action="store_true",
        help="the same pods twice: with PRESET=headroom, and with PRESET=savings",
    )
    length.add_argument(
        "--for",
        dest="seconds",
        type=shared.seconds,
        metavar="TIME",
        help="stop this long after all nodes are known, such as 45s",
    )


def program() -> Program:
    from joulie_cli.demo import demo

    return Program(demo.SETTINGS, demo.run)
