"""write a backup: facts, decisions, heads and the public key, read back and compared.

joulie backup --dir /srv/joulie-backup
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument(
        "--dir", type=Path, required=True, metavar="DIR", help="an earlier backup there is extended"
    )


def program() -> Program:
    return Program((), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_audit.retention.writing import write
    from joulie_cli.display.output import show
    from joulie_cli.display.progress import progress

    with progress("backup", args.output != "table"):
        kept = asyncio.run(write(args.dir, wires, now=True))
    text = (
        f"{args.dir} holds facts up to position {kept.facts_to} and entries up to {kept.log_to}, "
        f"read back and compared. Copy head.key and the credentials to your secret store, and the "
        f"streams after this backup (docs/backup.md)."
    )
    show(args, kept._asdict(), text)
    return 0
