"""`joulie archive`: writes the log to an archive, and restores it into an empty database."""

import argparse
import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import joulie_migrations
from joulie_answers.text.times import shown
from joulie_audit.archive.archiver import Archiver, ArchiveResult
from joulie_audit.archive.bucket_copy import PUBLIC_KEYS, BucketCopy
from joulie_audit.archive.columnar import Parquet, Segment, has_parquet
from joulie_audit.archive.parts import Archive
from joulie_audit.archive.restore import NEVER, Restored, restore_at
from joulie_audit.archive.untrusted_files import keys_of
from joulie_bus.errors import BucketFailed, DataDirectoryError, NotInTheLog, NotTrimmed
from joulie_bus.runtime.secret_files import write_private
from joulie_bus.runtime.settings import setting, some_time_or_never
from joulie_bus.runtime.vital_tasks import VitalTask, vital
from joulie_bus.s3.bucket import Bucket, BucketPlace, BucketSettings, bucket_place
from joulie_cli.display.output import show
from joulie_cli.display.progress import Tell, progress
from joulie_cli.display.times import MS
from joulie_cli.log_access.archiving import PeriodicArchiver
from joulie_cli.log_access.past import ArchivePlace, facts_of
from joulie_cli.log_access.trimming import as_json, as_text, trim
from joulie_cli.processes import serve_part
from joulie_cli.wiring import Wiring
from joulie_projections.decision_log.heads import public_key
from joulie_projections.store import database


def bucket_or_none(text: str) -> BucketPlace | None:
    """https://HOST/BUCKET/PREFIX, or empty"""
    return bucket_place(text) if text else None


@dataclass(frozen=True, kw_only=True)
class ArchiveSettings(ArchivePlace):
    keep_s: float | None = setting(
        some_time_or_never,
        "ARCHIVE_KEEP",
        "168h",
        "Time that archived facts and entries stay in the streams and the database",
    )
    bucket: BucketPlace | None = setting(
        bucket_or_none,
        "ARCHIVE_BUCKET",
        "",
        "A bucket with the API of S3 to which `joulie archive` copies each part; empty for none",
    )


SETTINGS = (ArchiveSettings, BucketSettings)
EVERY_S = 3600.0  # far less than the 24 h after which a stream drops readings


def run(args: argparse.Namespace, wires: Wiring) -> int:
    args.to = args.to or _directory(wires)
    if args.action == "restore":
        return restore_from(args.to, args, wires)
    settings = wires.source.load(ArchiveSettings)
    copy = _copy(settings, args.to, wires)
    if args.action == "fetch":
        return _fetch(args, copy)
    keep_s = settings.keep_s if args.keep is None else args.keep

    async def one_pass(now: bool) -> ArchiveResult:
        return await _copied(args, wires, copy, now=now)

    if args.every is not None:
        args.every = args.every or EVERY_S
        keeper = PeriodicArchiver(args, wires, one_pass, keep_s)
        return serve_part(wires, "archive", vital(VitalTask.ARCHIVE, keeper.run))
    with progress("archive", args.output != "table"):
        kept = asyncio.run(one_pass(args.now))
    result = kept._asdict()
    text = [_archived(kept, args.to, args.now)]
    if args.trim:
        trimmed = asyncio.run(trim(args.to, wires, _named(keep_s)))
        result |= {"trimmed": as_json(trimmed)}
        text.append(as_text(trimmed))
    show(args, result, "\n".join(text))
    return 0


def _named(keep_s: float | None) -> float:
    if keep_s is None:
        raise NotTrimmed(
            "ARCHIVE_KEEP is never, so nothing was trimmed. The archive itself was written. "
            "Give --keep TIME to trim anyway."
        )
    return keep_s


def _directory(wires: Wiring) -> Path:
    named = wires.source.load(ArchiveSettings).directory
    if not named:
        raise NotInTheLog("No archive is named. Give --to DIR, or set ARCHIVE_DIR.")
    return Path(named)


def _copy(settings: ArchiveSettings, to: Path, wires: Wiring) -> BucketCopy | None:
    if settings.bucket is None:
        return None
    return BucketCopy(Bucket(settings.bucket, wires.source.load(BucketSettings)), to)


def _fetch(args: argparse.Namespace, copy: BucketCopy | None) -> int:
    if copy is None:
        raise NotInTheLog(
            "No bucket is named, so nothing was fetched. Set ARCHIVE_BUCKET=https://HOST/BUCKET/PREFIX."
        )
    with progress("fetch", args.output != "table"):
        count = copy.fetch()
    show(args, {"parts": count}, f"{count} part{'' if count == 1 else 's'} fetched into {args.to}.")
    return 0


async def _copied(
    args: argparse.Namespace, wires: Wiring, copy: BucketCopy | None, *, now: bool
) -> ArchiveResult:
    """One pass. What a lost directory held is fetched first, and nothing is trimmed before a copy
    of it is in the bucket. While the bucket fails, parts are written all the same: streams drop
    telemetry, archived or not."""
    if copy is not None:
        await _fetched(copy, args.to)
    kept = await write(args.to, wires, now=now, plain=args.plain)
    if copy is not None:
        await asyncio.to_thread(copy.put)
    return kept


async def _fetched(copy: BucketCopy, to: Path) -> None:
    try:
        await asyncio.to_thread(copy.fetch)
    except BucketFailed:
        archive = Archive(to)
        if not (archive.facts or archive.log):
            raise  # another archive than that in the bucket would begin here


async def write(to: Path, wires: Wiring, *, now: bool, plain: bool = False) -> ArchiveResult:
    wires.data.require()
    form = Parquet() if has_parquet() and not plain else Segment()
    before = time.time_ns() + (2 * 3_600_000_000_000 if now else 0)
    async with facts_of(wires, None) as (history, facts):
        has_keys = wires.data.public_key.exists()
        keys = public_key(wires.data.public_key).statements if has_keys else ()
        kept = await Archiver(to, form, before, keys).run(history, facts)
    if has_keys:
        write_private(to / PUBLIC_KEYS, wires.data.public_key.read_text())
    return kept


def restore_from(path: Path, args: argparse.Namespace, wires: Wiring, until: int = NEVER) -> int:
    with progress("restore", args.output != "table") as tell:
        done = _restore(path, wires, until, tell)
    show(args, done._asdict(), _restored(done, wires.data.path))
    return 0


def _restore(path: Path, wires: Wiring, until: int, tell: Tell | None) -> Restored:
    data = wires.data
    archive, keys = Archive.of(path), keys_of(path / PUBLIC_KEYS)
    _require_committed_by(archive, until)
    data.create()
    with_schema = database.migrator(data.database)
    try:
        database.require_reachable(with_schema)
        if joulie_migrations.current(with_schema):
            raise DataDirectoryError(
                f"{database.without_password(data.database)} exists already; an archive is "
                "restored into an empty database only. Nothing was changed. Choose another one "
                "with --data."
            )
    finally:
        with_schema.dispose()
    done = restore_at(data.database, archive, until, tell)
    if keys is not None and not data.public_key.exists():
        data.public_key.write_bytes(keys)
    return done


def _require_committed_by(archive: Archive, until: int) -> None:
    facts = next((archive.read_facts(place, part) for place, part in archive.facts), None)
    first = next((manifest for manifest, *_ in facts.batches()), None) if facts else None
    if until != NEVER and (first is None or first.committed_at > until):
        begins = f": its log begins at {shown(first.committed_at // MS)}" if first else ""
        raise NotInTheLog(f"{archive.path} holds nothing of before {shown(until // MS)}{begins}.")


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


def _restored(done: Restored, path: Path) -> str:
    return (
        f"{done.facts} facts and {done.entries} entries were restored into {path}, with the same "
        "positions and hashes. Copy head.key there before a projector starts; otherwise it signs "
        "with a new key."
    )
