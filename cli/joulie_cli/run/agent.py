"""read the power, the hardware and the cards of this node, and publish them."""

import argparse
import os
from pathlib import Path

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument(
        "--once", action="store_true", help="read everything once, print it and publish nothing"
    )
    parser.add_argument(
        "--caps",
        action="store_true",
        help="set the limits that the operator orders for this node, and read nothing else",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --caps: report what would be set"
    )
    parser.add_argument(
        "--kept",
        type=Path,
        metavar="FILE",
        help="keep readings of an outage of the broker in this file as well (default: in memory)",
    )
    shared.limits_of_node(parser)
    parser.add_argument(
        "--node",
        default=os.environ.get("NODE_NAME", ""),
        metavar="NAME",
        help="the node that this is (the variable NODE_NAME, else the name of the host)",
    )


def program() -> Program:
    from joulie_cli.components import agent

    return Program(agent.SETTINGS, agent.run)
