"""`joulie twin`: the state of a node's twin, now or at an earlier position of the log."""

import argparse
import time

from joulie_cli.asking import questions
from joulie_cli.asking.sources import SETTINGS, asked
from joulie_cli.wiring import Wiring

__all__ = ["SETTINGS", "run"]


def run(args: argparse.Namespace, wires: Wiring) -> int:
    questions.moment(args.at, time.time_ns())  # what cannot be asked is reported before the data
    return asked(args, wires, questions.node)
