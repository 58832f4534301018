"""`joulie plans`: lists the operator's plans; `--next` and `--defragment` say what could follow."""

import argparse

from joulie_cli.asking import questions
from joulie_cli.asking.sources import SETTINGS, asked
from joulie_cli.display.output import show
from joulie_cli.reporting import defragment
from joulie_cli.wiring import Wiring

__all__ = ["SETTINGS", "run"]


def run(args: argparse.Namespace, wires: Wiring) -> int:
    if args.defragment:
        moves = defragment.report_of(args, wires)
        show(args, moves, defragment.as_text(moves, args.limit))
        return 0
    return asked(args, wires, questions.plans if args.next is None else questions.next_plan)
