"""print a script that completes commands and options in bash, zsh or fish."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from joulie_cli.command_line.commands import Program
from joulie_cli.command_line.completion import script

if TYPE_CHECKING:
    from joulie_cli.wiring import Wiring

SHELLS = ("bash", "zsh", "fish")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def program() -> Program:
    return Program((), run)


def run(args: argparse.Namespace, _: Wiring) -> int:
    print(script(args.shell))
    return 0
