"""set the scheduler of pods in labelled namespaces, as a mutating webhook."""

import argparse
from pathlib import Path

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

LISTEN = "127.0.0.1:9443"


def options(parser: argparse.ArgumentParser) -> None:
    shared.cluster(parser)
    parser.add_argument("--listen", default=LISTEN, metavar="ADDRESS", help=LISTEN)
    parser.add_argument("--cert", type=Path, required=True, metavar="FILE", help="PEM, with chain")
    parser.add_argument("--key", type=Path, required=True, metavar="FILE", help="PEM")
    parser.add_argument(
        "--client-ca",
        type=Path,
        metavar="FILE",
        help="PEM; only clients with a certificate of it get reviews answered",
    )
    parser.add_argument(
        "--client-names",
        default="",
        metavar="NAMES",
        help="common or DNS names of these clients, with commas between (any)",
    )
    parser.add_argument(
        "--scheduler", default="joulie", metavar="NAME", help="the pods' schedulerName (joulie)"
    )


def program() -> Program:
    from joulie_cli.run import admission

    return admission
