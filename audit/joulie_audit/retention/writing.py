"""Writes the log to an archive and to its copy in a bucket, and restores it."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import joulie_migrations
from joulie_audit.access.past import ArchivePlace, facts_of
from joulie_audit.archive.archiver import Archiver, ArchiveResult
from joulie_audit.archive.bucket_copy import PUBLIC_KEYS, BucketCopy
from joulie_audit.archive.columnar import Parquet, Segment, has_parquet
from joulie_audit.archive.parts import Archive
from joulie_audit.archive.restore import NEVER, Restored, Tell, restore_at
from joulie_audit.archive.untrusted_files import keys_of
from joulie_bus.core.times import MS, utc_text
from joulie_bus.errors import BucketFailed, DataDirectoryError, NotInTheLog
from joulie_bus.runtime.secret_files import write_private
from joulie_bus.runtime.settings import setting, some_time_or_never
from joulie_bus.s3.bucket import Bucket, BucketPlace, BucketSettings, bucket_place
from joulie_projections.component.wiring import Wiring
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


def copy_of(settings: ArchiveSettings, to: Path, wires: Wiring) -> BucketCopy | None:
    if settings.bucket is None:
        return None
    return BucketCopy(Bucket(settings.bucket, wires.source.load(BucketSettings)), to)


async def write_with_copy(
    to: Path, wires: Wiring, copy: BucketCopy | None, *, now: bool, plain: bool
) -> ArchiveResult:
    """One pass. What a lost directory held is fetched first, and nothing is trimmed before a copy
    of it is in the bucket. While the bucket fails, parts are written all the same: streams drop
    telemetry, archived or not."""
    if copy is not None:
        await _fetched(copy, to)
    kept = await write(to, wires, now=now, plain=plain)
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


def restore(path: Path, wires: Wiring, until: int, tell: Tell | None) -> Restored:
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
        begins = f": its log begins at {utc_text(first.committed_at // MS)}" if first else ""
        raise NotInTheLog(
            f"{archive.path} holds nothing of before {utc_text(until // MS)}{begins}."
        )
