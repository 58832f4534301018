"""restore a backup into an empty database, as it was at any time."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_audit.archive.restore import Restored
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument(
        "--from", dest="source", type=Path, required=True, metavar="DIR", help="a backup or archive"
    )
    parser.add_argument("--at", metavar="TIME", help="what was committed and signed by then")


def program() -> Program:
    return Program((), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_audit.archive.restore import NEVER
    from joulie_bus.core.times import MS, utc_text
    from joulie_bus.errors import NotInTheLog
    from joulie_cli.display.times import time_of_period

    now = time.time_ns()
    until = NEVER if args.at is None else time_of_period(args.at, now)
    if args.at is not None and until > now:
        raise NotInTheLog(f"{utc_text(until // MS)} is in the future. Nothing was restored.")
    return restore_from(args.source, args, wires, until)


def restore_from(
    path: Path, args: argparse.Namespace, wires: Wiring, until: int | None = None
) -> int:
    from joulie_audit.archive.restore import NEVER
    from joulie_audit.retention.writing import restore
    from joulie_cli.display.output import show
    from joulie_cli.display.progress import progress

    with progress("restore", args.output != "table") as tell:
        done = restore(path, wires, NEVER if until is None else until, tell)
    show(args, done._asdict(), _restored(done, wires.data.path))
    return 0


def _restored(done: Restored, path: Path) -> str:
    return (
        f"{done.facts} facts and {done.entries} entries were restored into {path}, with the same "
        "positions and hashes. Copy head.key there before a projector starts; otherwise it signs "
        "with a new key."
    )
