"""remove labels, NodeTwins and statuses from the cluster, before an uninstall."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.cluster(parser)
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="DEPLOYMENT",
        help="scale this Deployment of POD_NAMESPACE to 0 first; may be given again",
    )
    parser.add_argument(
        "--scheduler",
        default="",
        metavar="NAME",
        help="give pods that wait for this scheduler back to that of the cluster",
    )
    parser.add_argument(
        "--wait",
        type=shared.seconds,
        default=60.0,
        metavar="TIME",
        help="wait for the Lease (60s)",
    )


def program() -> Program:
    from joulie_cli.admin import release

    return release
