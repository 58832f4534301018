"""Restores an archive into an empty database, with the transactions of the projector."""

import secrets
from collections.abc import Callable, Mapping
from typing import NamedTuple

import joulie_migrations
from joulie_audit.archive.parts import LOG, Archive, FactPart, LogRead, newest_read
from joulie_bus.errors import ArchiveBroken, NeverArchived
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.entry import Entry
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.fold.commit import Checkpoint, Input
from joulie_projections.fold.manifest import CODE_VERSION, Manifest
from joulie_projections.fold.quarantine_quota import all_positions
from joulie_projections.fold.sequence import FoldCursor, sequence
from joulie_projections.fold.snapshots import frozen_state_of, pack
from joulie_projections.state.state import ClusterState
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store

SNAPSHOT_EVERY = 25_000  # positions
SNAPSHOTS_KEPT = 400
LEASE_S = 60.0
NEVER = 2**63 - 1  # later than any time


Tell = Callable[[int, int], None]


class Restored(NamedTuple):
    facts: int
    entries: int


def restore_at(
    place: Place, archive: Archive, until: int = NEVER, tell: Tell | None = None
) -> Restored:
    """Creates the schema in an empty database, and restores into it."""
    with_schema = database.migrator(place)
    try:
        joulie_migrations.upgrade(with_schema)
    finally:
        with_schema.dispose()
    engine = database.writer(place)
    try:
        store = Store(engine)
        held = store.acquire("restore", LEASE_S, secrets.token_hex(8), lambda _: True)
        assert held is not None  # the database is new, so no other process can hold the lease
        done = restore(archive, store, DecisionLog(engine), held, until, tell)
        store.release(held.epoch)
        return done
    finally:
        engine.dispose()


def restore(
    archive: Archive,
    store: Store,
    log: DecisionLog,
    held: Checkpoint,
    until: int = NEVER,
    tell: Tell | None = None,
) -> Restored:
    """`held` is the lease of the empty database. Raises at facts that fold to another state.

    With `until`, a time: the facts that were committed by then, and the entries up to the newest
    head that was signed by then. So no entry refers to a state that is not restored. `tell` gets
    the number of restored facts and that of all.
    """
    facts = _FactRestorer(store, held, until)
    for place, part in archive.facts:
        if tell is not None:
            tell(part.first - 1, archive.facts[-1][1].last)
        created = {Stream(stream): value for stream, value in part.created.items()}
        if not facts.put(str(place), archive.read_facts(place, part), created):
            break
    log.open()
    last = _last_entry(archive, until)
    entries, read = 0, list[LogRead]()
    for place, part in archive.parts(LOG):
        found = archive.read_log(place, part)
        kept = found.entries[: max(0, last - part.first + 1)]
        log.append(held.epoch, [Entry(each.fields, each.body) for each in kept], 0, Input("", 0))
        log.import_heads(held.epoch, [each for each in found.heads if each.signed_at <= until])
        entries += len(kept)
        read.extend(found.read)
    if newest := newest_read(reversed(read), entries):
        at = Input(newest.created, newest.sequence, newest.digest)
        log.append(held.epoch, [], 0, at)
    return Restored(facts.position, entries)


def _last_entry(archive: Archive, until: int) -> int:
    """The entry of the newest head that was signed by that time; all entries if it is NEVER."""
    if until == NEVER:
        return NEVER
    parts = (archive.read_log(place, part) for place, part in archive.parts(LOG))
    heads = (head for part in parts for head in part.heads if head.signed_at <= until)
    return max((head.pos for head in heads), default=0)


class _FactRestorer:
    def __init__(self, store: Store, held: Checkpoint, until: int) -> None:
        self._until = until
        self._store = store
        self._epoch = held.epoch
        self._cluster_state = ClusterState()
        self._kept_at = 0
        self._cursor = FoldCursor(held.position, held.inputs, held.digests, held.head)

    @property
    def position(self) -> int:
        return self._cursor.position

    def put(self, place: str, part: FactPart, created: Mapping[Stream, str]) -> bool:
        """False at the first commit after the wanted time."""
        aside = {poison.position: poison for poison in part.aside}
        set_aside = all_positions(part.aside)
        for manifest, records, lost in part.batches():
            _require_version(place, manifest)
            if lost:
                raise NeverArchived(place, manifest.p_from, manifest.p_to)
            now = manifest.committed_at
            if now > self._until:
                return False
            done = sequence(self._cluster_state, self._cursor, records, created, now, set_aside)
            if done.commit.manifest != manifest:
                raise ArchiveBroken(place, f"its facts fold to another state at {manifest.p_to}")
            span = range(manifest.p_from, manifest.p_to + 1)
            known = [aside[position] for position in span if position in aside]
            poison = sorted([*known, *done.commit.poison])
            self._store.commit(self._epoch, done.commit._replace(poison=poison))
            done.draft.commit()
            self._cursor = done.cursor
            self._keep_snapshot_when_due(now)
        return True

    def _keep_snapshot_when_due(self, now: int) -> None:
        """Keeps snapshots like the old database, so that time travel does not fold everything."""
        if self.position - self._kept_at >= SNAPSHOT_EVERY:
            self._kept_at = self.position
            made = pack(frozen_state_of(self._cluster_state, self._cursor), now)
            self._store.save_snapshot(self._epoch, made, SNAPSHOTS_KEPT)


def _require_version(place: str, manifest: Manifest) -> None:
    if manifest.fold_version != CODE_VERSION:
        raise ArchiveBroken(
            place,
            f"it was folded by version {manifest.fold_version}, and this is {CODE_VERSION}; "
            "restore with that one, then migrate",
        )
