"""`joulie backup`: an archive up to this moment, as a backup."""

import argparse
import asyncio

from joulie_cli.display.output import show
from joulie_cli.display.progress import progress
from joulie_cli.run.archive import write
from joulie_cli.wiring import Wiring

SETTINGS = ()


def run(args: argparse.Namespace, wires: Wiring) -> int:
    with progress("backup", args.output != "table"):
        kept = asyncio.run(write(args.to, wires, now=True))
    text = (
        f"{args.to} holds facts up to position {kept.facts_to} and entries up to {kept.log_to}, "
        f"read back and compared. Copy head.key and the credentials to your secret store, and the "
        f"streams after this backup (docs/backup.md)."
    )
    show(args, kept._asdict(), text)
    return 0
