"""print a script that completes commands and options in bash, zsh or fish."""

import argparse

from joulie_cli.command_line.commands import Printed
from joulie_cli.command_line.completion import script

SHELLS = ("bash", "zsh", "fish")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def program() -> Printed:
    return Printed(lambda args: script(args.shell))
