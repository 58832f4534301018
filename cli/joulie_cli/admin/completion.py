"""`joulie completion`: prints a script that completes commands and options in a shell."""

import argparse

from joulie_cli.command_line.completion import script
from joulie_cli.wiring import Wiring

SETTINGS = ()


def run(args: argparse.Namespace, _: Wiring) -> int:
    print(script(args.shell))
    return 0
