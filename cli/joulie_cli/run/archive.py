"""write the log to an archive outside broker and database, restore it, or fetch its copy.

joulie archive --dir /srv/joulie-archive
joulie archive --dir /srv/joulie-archive --every 1h --trim
joulie archive restore --dir /srv/joulie-archive --data /srv/new
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_audit.archive.archiver import ArchiveResult
    from joulie_audit.archive.bucket_copy import BucketCopy
    from joulie_audit.retention.trimming import CutMade
    from joulie_audit.retention.writing import ArchiveSettings
    from joulie_projections.component.wiring import Wiring

EVERY_S = 3600.0  # far less than the 24 h after which a stream drops readings

MIB = 2**20


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("action", nargs="?", choices=("write", "restore", "fetch"), default="write")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="the archive (ARCHIVE_DIR)")
    parser.add_argument(
        "--every",
        nargs="?",
        const=0.0,
        type=shared.some_seconds,
        metavar="TIME",
        help="repeat until stopped (1h)",
    )
    shared.day(parser, "fetch: only the files of this day (UTC), and the manifests of all parts")
    parser.add_argument("--now", action="store_true", help="include the current hour")
    parser.add_argument(
        "--plain", action="store_true", help="do not write Parquet even if it is available"
    )
    parser.add_argument(
        "--trim",
        action="store_true",
        help="then have the projector delete archived data from streams and database",
    )
    parser.add_argument(
        "--keep",
        type=shared.some_seconds,
        metavar="TIME",
        help="minimum age of trimmed data (ARCHIVE_KEEP)",
    )


def program() -> Program:
    from joulie_audit.retention.writing import SETTINGS

    return Program(SETTINGS, run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_audit.archive.restore import RestoreOptions
    from joulie_audit.retention.periodic import PeriodicArchiver, Schedule
    from joulie_audit.retention.writing import ArchiveSettings, copy_of, write_with_copy
    from joulie_bus.runtime.vital_tasks import VitalTask, vital
    from joulie_cli.run.restore import restore_from
    from joulie_projections.component.process import serve_part

    settings = wires.source.load(ArchiveSettings)
    to: Path = args.dir or _directory(settings)
    if args.action == "restore":
        return restore_from(to, args, wires, RestoreOptions())
    copy = copy_of(settings, to, wires)
    if args.action == "fetch":
        return _fetch(args, to, copy)
    keep_s = settings.keep_s if args.keep is None else args.keep

    async def one_pass(now: bool) -> ArchiveResult:
        return await write_with_copy(to, wires, copy, now=now, plain=args.plain)

    if args.every is None:
        return _write_once(args, wires, to, one_pass, keep_s)
    schedule = Schedule(to, args.every or EVERY_S, keep_s, now=args.now)
    keeper = PeriodicArchiver(schedule, wires, one_pass)
    return serve_part(wires, "archive", vital(VitalTask.ARCHIVE, keeper.run))


def _write_once(
    args: argparse.Namespace,
    wires: Wiring,
    to: Path,
    one_pass: Callable[[bool], Awaitable[ArchiveResult]],
    keep_s: float | None,
) -> int:
    from joulie_audit.retention.trimming import trim
    from joulie_cli.display.output import show
    from joulie_cli.display.progress import progress

    async def write() -> ArchiveResult:
        return await one_pass(args.now)

    with progress("archive", args.output != "table"):
        kept = asyncio.run(write())
    result = kept._asdict()
    text = [_archived(kept, to, args.now)]
    if args.trim:
        trimmed = asyncio.run(trim(to, wires, _named(keep_s)))
        result |= {"trimmed": as_json(trimmed)}
        text.append(as_text(trimmed))
    show(args, result, "\n".join(text))
    return 0


def _named(keep_s: float | None) -> float:
    from joulie_bus.errors import NotTrimmed

    if keep_s is None:
        raise NotTrimmed(
            "ARCHIVE_KEEP is never, so nothing was trimmed. The archive itself was written. "
            "Give --keep TIME to trim anyway."
        )
    return keep_s


def _directory(settings: ArchiveSettings) -> Path:
    from joulie_bus.errors import NotInTheLog

    if not settings.directory:
        raise NotInTheLog(
            "No archive is named. Nothing was done. Give --dir DIR, or set ARCHIVE_DIR."
        )
    return Path(settings.directory)


def _fetch(args: argparse.Namespace, to: Path, copy: BucketCopy | None) -> int:
    from joulie_bus.errors import NotInTheLog
    from joulie_cli.display.output import show
    from joulie_cli.display.progress import progress

    if copy is None:
        raise NotInTheLog(
            "No bucket is named, so nothing was fetched. Set ARCHIVE_BUCKET=https://HOST/BUCKET/PREFIX."
        )
    with progress("fetch", args.output != "table"):
        count = copy.fetch(args.day or "")
    show(args, {"parts": count}, f"{count} part{'' if count == 1 else 's'} fetched into {to}.")
    return 0


def _archived(kept: ArchiveResult, to: Path, now: bool) -> str:
    if not kept.parts:
        hint = "" if now else " Only complete hours are archived; --now includes the current one."
        return (
            f"Nothing new: the archive holds facts up to position {kept.facts_to} and entries up "
            f"to {kept.log_to}.{hint}"
        )
    lost = (
        f" {kept.lost} messages had aged out of their stream before: the archive lacks them."
        if kept.lost
        else ""
    )
    return (
        f"{kept.parts} new part{'' if kept.parts == 1 else 's'} in {to}, read back and compared: "
        f"facts up to position {kept.facts_to}, entries up to {kept.log_to}.{lost}"
    )


def as_json(done: CutMade) -> dict[str, Any]:
    cut = done.cut
    found = None if cut is None else {"entry": cut.pos, "position": cut.p_to, "by": cut.made_by}
    told = ("is_new", "is_done", "rows", "messages", "freed")
    return {"cut": found, **{name: getattr(done.answer, name) for name in told}}


def as_text(done: CutMade) -> str:
    from joulie_bus.core.times import MS, utc_text

    if done.cut is None:
        return (
            "Nothing was trimmed: nothing is archived, signed and anchored, older than the keep "
            "window (--keep, ARCHIVE_KEEP) and before a snapshot."
        )
    answer, at = done.answer, utc_text(done.cut.made_at // MS)
    line = (
        f"The log is cut at entry {done.cut.pos} and position {done.cut.p_to} "
        f"({at}{'' if answer.is_new else '; unchanged'})."
    )
    if not answer.is_done:
        return f"{line}\nThe projector still deletes what lies before." if answer.is_new else line
    purged = ", ".join(f"{count} of {stream}" for stream, count in answer.messages.items())
    return (
        f"{line}\nDeleted: {answer.rows} rows ({answer.freed / MIB:.1f} MiB freed), and messages: "
        f"{purged or 'none'}."
    )
