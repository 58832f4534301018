"""Writes the log to an archive and to its copy in a bucket, and restores it."""

import asyncio
import time
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import joulie_migrations
from joulie_audit.access.kept_heads import public_key, public_key_in
from joulie_audit.access.past import ArchivePlace, facts_of
from joulie_audit.archive.archiver import Archiver, ArchiveResult
from joulie_audit.archive.bucket_copy import PUBLIC_KEYS, BucketCopy
from joulie_audit.archive.columnar import Parquet, Segment, has_parquet
from joulie_audit.archive.fact_restore import Tell
from joulie_audit.archive.parts import LOG, Archive
from joulie_audit.archive.restore import NEVER, Restored, RestoreOptions, restore_at
from joulie_audit.archive.untrusted_files import keys_of
from joulie_bus.core.times import MS, utc_text
from joulie_bus.errors import BucketFailed, DataDirectoryError, NotInTheLog
from joulie_bus.runtime.secret_files import write_private
from joulie_bus.runtime.settings import setting, some_time_or_never
from joulie_bus.s3.bucket import Bucket, BucketPlace, BucketSettings, bucket_place
from joulie_projections.chain.keyring import Ring
from joulie_projections.component.wiring import Wiring
from joulie_projections.decision_log import heads
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.witness.restored_copy import mark_copy


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
        kept = await Archiver(to, form, before, public_key(wires)).run(history, facts)
    write_private(to / PUBLIC_KEYS, wires.data.public_key.read_text())
    return kept


def restore(
    path: Path,
    wires: Wiring,
    options: RestoreOptions,
    tell: Tell | None,
    *,
    key: Path | None = None,
    continues: bool = False,
) -> Restored:
    """`key` is a file with the keys of the log, from elsewhere than the archive. Unless the
    database `continues` the log, it is marked as a copy."""
    data = wires.data
    archive, keys = Archive.of(path), keys_of(path / PUBLIC_KEYS)
    _require_committed_by(archive, options.until)
    if key is not None:
        options = options._replace(ring=public_key_in(key))
        _require_signed(archive, options.ring, key)
    elif keys is not None:
        options = options._replace(ring=heads.public_key(path / PUBLIC_KEYS))
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
    done = restore_at(data.database, archive, options, tell)
    if not continues:
        _mark_copy(data.database, done.entries)
    if keys is not None and not data.public_key.exists():
        data.public_key.write_bytes(keys)
    return done


def _mark_copy(place: Place, entries: int) -> None:
    engine = database.writer(place)
    try:
        mark_copy(engine, entries)
    finally:
        engine.dispose()


def _require_signed(archive: Archive, ring: Ring | None, key: Path) -> None:
    parts = (archive.read_log(place, part) for place, part in archive.parts(LOG))
    found = [head for part in parts for head in part.heads]
    if found and ring is not None and not ring.valid(found):
        raise NotInTheLog(
            f"{key} signed none of the {len(found)} heads in {archive.path}. Nothing was restored. "
            "The archive is of another log, or was forged."
        )


def _require_committed_by(archive: Archive, until: int) -> None:
    manifests = (archive.read_manifests(place, part) for place, part in archive.facts)
    first = next(chain.from_iterable(manifests), None)
    if until != NEVER and (first is None or first.committed_at > until):
        begins = f": its log begins at {utc_text(first.committed_at // MS)}" if first else ""
        raise NotInTheLog(
            f"{archive.path} holds nothing of before {utc_text(until // MS)}{begins}."
        )
