"""restore a backup into an empty database, as it was at any time.

joulie restore --dir /srv/joulie-backup --data /srv/new
joulie restore --dir /srv/joulie-backup --data /srv/new --at 2026-11-21T10:30
joulie restore --dir /srv/joulie-backup --data /srv/new --key head.pub --continue
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_audit.archive.restore import Restored, RestoreOptions
    from joulie_projections.component.wiring import Wiring


NOT_COSIGNED = (
    "NOT cosigned: a backup holds no cosignatures. `joulie verify --witness KEY@URL` asks the "
    "witnesses whether they saw this log."
)
A_COPY = (
    "It is a copy: its projector asks no witness, and keeps no heads at the place of HEADS_TO. If "
    "the original has ended, restore with --continue (`joulie restore`)."
)


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument(
        "--dir", type=Path, required=True, metavar="DIR", help="a backup or archive"
    )
    parser.add_argument("--at", metavar="TIME", help="what was committed and signed by then")
    parser.add_argument(
        "--whole", action="store_true", help="fold from the first fact, not from a snapshot"
    )
    parser.add_argument(
        "--key", type=Path, metavar="FILE", help="the keys of the log, not from the backup"
    )
    parser.add_argument(
        "--continue",
        dest="continues",
        action="store_true",
        help="the original has ended: witnesses and HEADS_TO follow this database",
    )


def program() -> Program:
    return Program((), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_audit.archive.restore import NEVER, RestoreOptions
    from joulie_bus.core.times import MS, utc_text
    from joulie_bus.errors import NotInTheLog
    from joulie_cli.display.times import time_of_period

    now = time.time_ns()
    until = NEVER if args.at is None else time_of_period(args.at, now)
    if args.at is not None and until > now:
        raise NotInTheLog(
            f"{utc_text(until // MS)} is in the future. Nothing was restored. "
            "Give a time in the past."
        )
    options = RestoreOptions(until, args.whole)
    return restore_from(args.dir, args, wires, options, args.key, continues=args.continues)


def restore_from(
    path: Path,
    args: argparse.Namespace,
    wires: Wiring,
    options: RestoreOptions,
    key: Path | None = None,
    *,
    continues: bool = False,
) -> int:
    from joulie_audit.retention.writing import restore
    from joulie_cli.display.output import show
    from joulie_cli.display.progress import progress

    with progress("restore", args.output != "table") as tell:
        done = restore(path, wires, options, tell, key=key, continues=continues)
    lines = [as_text(done, wires.data.path), *_signed_lines(done, key)]
    if not continues:
        lines.append(A_COPY)
    show(args, as_json(done, continues=continues), "\n".join(lines))
    return 0


def as_json(done: Restored, *, continues: bool) -> dict[str, object]:
    holes, signed = [hole._asdict() for hole in done.holes], done.signed._asdict()
    return {**done._asdict(), "holes": holes, "signed": signed, "is_copy": not continues}


def as_text(done: Restored, path: Path) -> str:
    from joulie_projections.fold.comparison import uncompared_text

    lines = [
        f"{done.facts} facts and {done.entries} entries were restored into {path}. Copy head.key "
        "there before a projector starts; otherwise it signs with a new key."
    ]
    if done.folded_from:
        lines.append(
            f"Folded from the snapshot at position {done.folded_from} on; the state before is in "
            "the archive (--archive, ARCHIVE_DIR)."
        )
    lines.extend(f"NOT folded: {hole}." for hole in done.holes)
    return "\n".join([*lines, *filter(None, [uncompared_text(done.uncompared)])])


def _signed_lines(done: Restored, key: Path | None) -> list[str]:
    """What was signed and cosigned, and what was not."""
    signed, lines = done.signed, list[str]()
    entries, facts = min(signed.entries, done.entries), min(signed.facts, done.facts)
    if entries:
        names = " and ".join(signed.keys)
        source = f"of {key}" if key is not None else "that only the backup itself names"
        lines.append(
            f"Signed, by the key {names} {source}: {_up_to('entries', entries)}, "
            f"{_up_to('positions', facts)}."
        )
        if key is None:
            lines.append("Compare it with a copy of head.pub from elsewhere, or give --key FILE.")
    rest = [
        *([f"entries {entries + 1} to {done.entries}"] if entries < done.entries else []),
        *([f"positions {facts + 1} to {done.facts}"] if facts < done.facts else []),
    ]
    if rest:
        lines.append(f"NOT signed: {', '.join(rest)}.")
    lines.append(NOT_COSIGNED)
    return lines


def _up_to(what: str, last: int) -> str:
    return f"{what} 1 to {last}" if last else f"no {what}"
