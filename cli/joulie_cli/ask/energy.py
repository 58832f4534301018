"""`joulie energy`: the energy of nodes, pods and plans in a period, from the ledger."""

import argparse
import time

from joulie_cli.asking import questions
from joulie_cli.asking.sources import SETTINGS, asked
from joulie_cli.wiring import Wiring

__all__ = ["SETTINGS", "run"]


def run(args: argparse.Namespace, wires: Wiring) -> int:
    questions.period_of(args, time.time_ns())  # what cannot be asked is reported before the data
    return asked(args, wires, questions.energy)
