"""limit the power of the cluster, of a feed or of a rack for a time."""

import argparse

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

ACTIONS = ("list", "set", "clear")
MOST_WATTS = 1e11  # of joulie_bus.events.bounds, without importing it


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="list", help="list")
    parser.add_argument("name", nargs="?", default="target", help="name of the target (target)")
    parser.add_argument("--watts", type=_watts, metavar="W", help="the most power")
    of = parser.add_mutually_exclusive_group()
    of.add_argument("--feed", metavar="NAME", help="label joulie.io/feed (the whole cluster)")
    of.add_argument("--rack", metavar="NAME", help="label joulie.io/rack (the whole cluster)")
    parser.add_argument("--from", dest="first", metavar="TIME", help="a time, or +10m (now)")
    parser.add_argument("--to", dest="last", metavar="TIME", help="a time, or +10m")
    parser.add_argument("--because", metavar="TEXT", help="the reason, for the plans")


def program() -> Program:
    from joulie_cli.admin import target

    return target


def _watts(text: str) -> float:
    watts = float(text)
    if not 0 <= watts <= MOST_WATTS:
        raise argparse.ArgumentTypeError(f"{text} is not a power from 0 to {MOST_WATTS:g} W")
    return watts
