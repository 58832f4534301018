"""assign power profiles to nodes.

joulie operator --kubeconfig ~/.kube/config
"""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.cluster(parser)
    parser.add_argument(
        "--shadow", action="store_true", help="read the cluster only: no Lease, no writes"
    )


def program() -> Program:
    from joulie_operator import component as operator

    return Program(operator.SETTINGS, operator.run)
