"""cosign checkpoints of the logs of others that extend what was seen of them."""

import argparse
from pathlib import Path

from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=("serve", "key"), default="serve", help="key prints its key"
    )
    parser.add_argument("--state", type=Path, metavar="DIR", help="its key, and what it saw")
    parser.add_argument(
        "--name", default="", help="its name, such as w1.example.com; stays as first given"
    )
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="KEY",
        help="a key of a log to witness, as `joulie keys list` prints it; repeatable",
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:9880", metavar="ADDR", help="(127.0.0.1:9880)"
    )


def program() -> Program:
    from joulie_cli.run import witness

    return witness
