"""`joulie restore`: a backup into an empty database, as of a time."""

import argparse
import time

from joulie_answers.text.times import shown
from joulie_audit.archive.restore import NEVER
from joulie_bus.errors import NotInTheLog
from joulie_cli.display.times import MS, time_of_period
from joulie_cli.run.archive import restore_from
from joulie_cli.wiring import Wiring

SETTINGS = ()


def run(args: argparse.Namespace, wires: Wiring) -> int:
    now = time.time_ns()
    until = NEVER if args.at is None else time_of_period(args.at, now)
    if args.at is not None and until > now:
        raise NotInTheLog(f"{shown(until // MS)} is in the future. Nothing was restored.")
    return restore_from(args.source, args, wires, until)
