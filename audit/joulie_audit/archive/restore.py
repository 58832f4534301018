"""Restores an archive into an empty database, with the transactions of the projector."""

import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import joulie_migrations
from joulie_audit.archive.fact_restore import FactRestorer, Tell
from joulie_audit.archive.parts import LOG, Archive
from joulie_audit.archive.restore_plan import Hole, plan_of
from joulie_bus.errors import ArchiveBroken, NeverArchived
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.entry import Entry
from joulie_projections.chain.head import Head
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.log_end import chained
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.fold.commit import Checkpoint
from joulie_projections.history.history import History, StoredEntry
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store

LEASE_S = 60.0
NEVER = 2**63 - 1  # later than any time


class SignedPart(NamedTuple):
    """What heads that a key of the ring signed cover: up to an entry, and up to a position."""

    entries: int = 0
    facts: int = 0
    keys: Sequence[str] = ()


class _Signed:
    """The heads of a log that is restored."""

    def __init__(self) -> None:
        self._keys, self._entries = dict[str, None](), 0
        self._manifests: list[tuple[int, bytes]] = []  # by position

    def add(self, heads: Sequence[Head]) -> None:
        for head in heads:
            self._keys[head.key_id], self._entries = None, head.pos
            self._manifests.append((head.commitment.position, head.commitment.manifest))

    def part(self, history: History, facts: int) -> SignedPart:
        """`facts` are those that were restored: a head about later ones does not cover them."""
        said = next((each for each in reversed(self._manifests) if each[0] <= facts), (0, b""))
        found = next(history.manifests(said[0], said[0]), None)
        is_same = found is not None and (found.p_to, found.head) == said
        return SignedPart(self._entries, said[0] if is_same else 0, tuple(self._keys))


class Restored(NamedTuple):
    facts: int
    entries: int
    uncompared: Mapping[str, int] = {}  # positions whose state was not compared, by fold version
    folded_from: int = 0  # the snapshot at which the fold began; 0: at the first fact
    holes: Sequence[Hole] = ()  # positions whose facts could not be folded
    signed: SignedPart = SignedPart()


class RestoreOptions(NamedTuple):
    until: int = NEVER  # only what was committed by this time, and signed
    is_whole: bool = False  # folds from the first fact on, and not from a snapshot
    ring: Ring | None = None  # of the log; without it no signature is checked


ALL = RestoreOptions()


def restore_at(
    place: Place,
    archive: Archive,
    options: RestoreOptions = ALL,
    tell: Tell | None = None,
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
        done, signed = restore(archive, store, DecisionLog(engine), held, options, tell)
        store.release(held.epoch)
    finally:
        engine.dispose()
    with History.of(place) as history:
        return done._replace(signed=signed.part(history, done.facts))


def restore(
    archive: Archive,
    store: Store,
    log: DecisionLog,
    held: Checkpoint,
    options: RestoreOptions,
    tell: Tell | None = None,
) -> tuple[Restored, _Signed]:
    """`held` is the lease of the empty database. Raises at facts that fold to another state.

    With `until`, a time: the facts that were committed by then, and the entries up to the newest
    head that was signed by then. So no entry refers to a state that is not restored.
    """
    plan = plan_of(archive, options.until, is_whole=options.is_whole)
    if plan.holes and not plan.end:
        raise NeverArchived(str(archive.path), 1, plan.holes[0].last)
    facts = FactRestorer(archive, store, held, plan)
    facts.run(tell)
    until = options.until if plan.ended_at is None else plan.ended_at
    log.begin_empty(held.epoch)
    last, signed = _last_entry(archive, until), _Signed()
    for place, part in archive.parts(LOG):
        found = archive.read_log(place, part)
        kept = found.entries[: max(0, last - part.first + 1)]
        heads = [head for head in found.heads if kept and head.pos <= kept[-1].pos]
        if options.ring is not None:
            heads = options.ring.valid(heads)
            _require_signed_as_kept(str(place), kept, heads)
            signed.add(heads)
        _restore_entries(log, held.epoch, str(place), kept, heads)
    compared = facts.comparison.uncompared, plan.folded_from
    return Restored(facts.position, log.end.pos, *compared, tuple(plan.holes)), signed


def _require_signed_as_kept(
    place: str, entries: Sequence[StoredEntry], heads: Sequence[Head]
) -> None:
    hashes = {entry.pos: entry.hash for entry in entries}
    for head in heads:
        if hashes.get(head.pos) != head.hash:
            raise ArchiveBroken(place, f"entry {head.pos} does not match its signed head")


def _restore_entries(
    log: DecisionLog,
    epoch: int,
    place: str,
    entries: Sequence[StoredEntry],
    signed: Sequence[Head],
) -> None:
    """The newest head names the message after which the restored log continues."""
    if not entries:
        return
    read = signed[-1].commitment.read.get(Stream.DEC) if signed else None
    added = [Entry(each.fields, each.body) for each in entries]
    made = chained(log.end, added, read or log.end.read)
    if made.end.hash != entries[-1].hash:
        raise ArchiveBroken(place, "its entries do not link to those before them")
    log.restore(epoch, made, list(signed))


def _last_entry(archive: Archive, until: int) -> int:
    """The entry of the newest head that was signed by that time; all entries if it is NEVER."""
    if until == NEVER:
        return NEVER
    parts = (archive.read_log(place, part) for place, part in archive.parts(LOG))
    heads = (head for part in parts for head in part.heads if head.signed_at <= until)
    return max((head.pos for head in heads), default=0)
