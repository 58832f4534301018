"""`joulie gpus`: GPU cards, the pods that use them, free memory and its fragmentation."""

import argparse

from joulie_cli.asking import questions
from joulie_cli.asking.sources import SETTINGS, asked
from joulie_cli.wiring import Wiring

__all__ = ["SETTINGS", "run"]


def run(args: argparse.Namespace, wires: Wiring) -> int:
    return asked(args, wires, questions.gpus)
