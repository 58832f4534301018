"""The decision log: gapless, chained, append-only. Every answer has exactly one entry."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, Engine, delete, func, insert, select

from joulie_bus.errors import DatabaseSetBack
from joulie_bus.events import OutcomeSeen, PrioritizeDecided
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.entry import (
    FIRST_PREV,
    Entry,
    chain_hash,
    detached_header,
    message_in,
)
from joulie_projections.chain.note import LogCheckpoint
from joulie_projections.chain.outcomes import ROW_REASSIGNED
from joulie_projections.decision_log import tree
from joulie_projections.decision_log.heads import Head, Signer
from joulie_projections.decision_log.position import NAME, decision_input
from joulie_projections.decision_log.tree import Growth
from joulie_projections.fold.commit import FirstBinding, Input
from joulie_projections.store.row_name_table import had_row, newest_change
from joulie_projections.store.statements import InsertRows, apply_change
from joulie_projections.store.store import empty_checkpoint, insert_new, require_epoch
from joulie_projections.store.tables import checkpoint, decision, head, outcome_due

UNREADABLE_QUOTA = "decisions-unreadable"  # a row of `checkpoint`


class Tip(NamedTuple):
    """The position and the hash of the last entry."""

    pos: int
    hash: bytes


class DecisionLog:
    """The writer's side of the log. Each append is one transaction, fenced by the lease."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tree: tuple[int, Growth] | None = None  # of the last checkpoint, by its epoch

    def open(self) -> tuple[Tip, Input]:
        """The end of the log, and how far its stream was read."""
        with self._engine.begin() as db:
            insert_new(db, checkpoint, empty_checkpoint(NAME))
            return _tip(db), decision_input(db)

    def read_to(self) -> int:
        """How far the stream of decisions was read."""
        return self.input().sequence

    def input(self) -> Input:
        """The last message of the stream of decisions that was read."""
        with self._engine.connect() as db:
            return decision_input(db)

    def unreadable_quota(self) -> bytes:
        """What unreadable messages had used of their quota by the last append."""
        with self._engine.connect() as db:
            mine = checkpoint.c.name == UNREADABLE_QUOTA
            return db.scalar(select(checkpoint.c.inputs).where(mine)) or b""

    def continue_stream(self, epoch: int, created: str) -> None:
        """Records the identity of a new stream, which continues at the same position."""
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            read = msgspec.structs.replace(decision_input(db), created=created)
            mine = checkpoint.update().where(checkpoint.c.name == NAME)
            db.execute(mine.values(inputs=msgspec.msgpack.encode({Stream.DEC: read})))

    def append(
        self,
        epoch: int,
        entries: Sequence[Entry],
        after: int,
        read: Input,
        quota: bytes | None = None,
    ) -> int:
        """Adds the new ones of `entries` and the position in the stream in one transaction.

        `after` is the position in the stream that they follow. `quota`, what unreadable messages
        have used of theirs, is saved with them. Returns the end of the log. Raises DatabaseSetBack,
        without a change, if the database was read up to another position: it is not the one that
        the entries before these were written to.
        """
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            tip, held = _tip(db), decision_input(db)
            if held == read and read.sequence != after:
                return tip.pos  # the reply to the COMMIT was lost, and the call is repeated
            if held.sequence != after:
                raise DatabaseSetBack("message of decisions", held.sequence, after)
            placed = _chained(tip, _without_known(db, entries))
            _insert(db, placed)
            if quota is not None:
                _save_quota(db, quota)
            inputs = msgspec.msgpack.encode({Stream.DEC: read})
            last = placed[-1].pos if placed else tip.pos
            db.execute(
                checkpoint.update()
                .where(checkpoint.c.name == NAME)
                .values(inputs=inputs, position=last, epoch=epoch)
            )
            settled = [fields.pod_uid for fields, _ in entries if fields.kind == OutcomeSeen.TYPE]
            if settled:
                db.execute(delete(outcome_due).where(outcome_due.c.pod_uid.in_(settled)))
            return last

    def due(self, at_most: int) -> list[tuple[FirstBinding, bytes | None]]:
        """Bound pods without an outcome, each with the last answer that scored it."""
        with self._engine.connect() as db, db.begin():
            oldest = select(outcome_due).order_by(outcome_due.c.position).limit(at_most)
            due = list(map(FirstBinding._make, db.execute(oldest)))
            if not due:
                return []  # as nearly always: the writer asks four times a second
            answers, moved_at = _last_answers(db, due), newest_change(db)
            return [_with_answer(db, bound, answers.get(bound.pod_uid), moved_at) for bound in due]

    def drop_settled(self, epoch: int) -> None:
        """Deletes due pods that have an outcome: a pod seen bound again becomes due again."""
        has_one = select(decision.c.pos).where(
            decision.c.pod_uid == outcome_due.c.pod_uid, decision.c.kind == OutcomeSeen.TYPE
        )
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            db.execute(delete(outcome_due).where(has_one.exists()))

    def sign_head(self, epoch: int, signer: Signer, now: int, written: int = 0) -> Head | None:
        """Signs the end of the log; None if it is signed already or the key may not sign it.

        `written` is the entry that the caller wrote last. Raises DatabaseSetBack if the log ends
        before it: anchored, such a head would hide the newer ones that the database has lost.
        """
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            tip = _tip(db)
            if tip.pos < written:
                raise DatabaseSetBack("entry of the decision log", tip.pos, written)
            signed = db.scalar(select(func.max(head.c.pos))) or 0
            if tip.pos <= signed or not signer.may_sign(tip.pos):
                return None
            made = signer.sign(tip.pos, tip.hash, now)
            db.execute(insert(head).values(**made.as_row()))
            return made

    def sign_checkpoint(self, epoch: int, signer: Signer) -> LogCheckpoint | None:
        """Adds the entries up to the newest head to the Merkle tree, and signs its checkpoint.

        None if it is signed already, if the tree of an existing log needs more steps, or if the key
        signs other entries.
        """
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            known, self._tree = self._tree, None
            is_known = known is not None and known[0] == epoch
            grown = known[1].copied() if known is not None and is_known else tree.read(db)
            last = db.scalar(select(func.max(head.c.pos))) or 0
            is_whole = last > grown.pos and tree.grow(db, grown, last)
            is_due = is_whole and signer.may_sign(last)
            made = tree.signed_checkpoint(db, grown, signer) if is_due else None
        self._tree = epoch, grown
        return made

    def newest_head(self) -> Head | None:
        newest = select(head).order_by(head.c.pos.desc()).limit(1)
        with self._engine.connect() as db:
            found = db.execute(newest).mappings().first()
        return Head(**found) if found is not None else None

    def signed_to(self, epoch: int) -> Tip:
        """The entry of the newest head."""
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            newest = select(head.c.pos, head.c.hash).order_by(head.c.pos.desc()).limit(1)
            found = db.execute(newest).first()
            return Tip(found.pos, found.hash) if found else Tip(0, FIRST_PREV)

    def restore_lost_heads(self, epoch: int, anchored: Sequence[Head]) -> None:
        """Inserts anchored heads that an older copy of the database lacks, if the entries match."""
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            at = [made.pos for made in anchored]
            known = set(db.scalars(select(head.c.pos).where(head.c.pos.in_(at))))
            entries = db.execute(
                select(decision.c.pos, decision.c.hash).where(decision.c.pos.in_(at))
            )
            there = {(pos, here) for pos, here in entries if pos not in known}
            lost = {made.pos: made for made in anchored if (made.pos, made.hash) in there}
            if lost:
                db.execute(insert(head), [made.as_row() for made in lost.values()])

    def import_heads(self, epoch: int, heads: Sequence[Head]) -> None:
        """Inserts heads that were signed before, when a log is restored."""
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            if heads:
                db.execute(insert(head), [made.as_row() for made in heads])


def _save_quota(db: Connection, quota: bytes) -> None:
    """Beside the position up to which the stream was read: the two belong together."""
    insert_new(db, checkpoint, empty_checkpoint(UNREADABLE_QUOTA))
    mine = checkpoint.update().where(checkpoint.c.name == UNREADABLE_QUOTA)
    db.execute(mine.values(inputs=quota))


class _ChainedEntry(NamedTuple):
    pos: int
    entry: Entry
    prev: bytes
    hash: bytes


def _chained(tip: Tip, entries: Sequence[Entry]) -> list[_ChainedEntry]:
    placed: list[_ChainedEntry] = []
    pos, prev = tip
    for entry in entries:
        pos, here = pos + 1, chain_hash(prev, entry.body)
        placed.append(_ChainedEntry(pos, entry, prev, here))
        prev = here
    return placed


_COLUMNS = [column.name for column in decision.c]
_SQLITE_COLUMNS = (
    "pos",
    "body",
    "prev",
    "hash",
    "beside",
)  # SQLite generates the others


def _insert(db: Connection, placed: Sequence[_ChainedEntry]) -> None:
    rows: list[tuple[object, ...]]
    if db.dialect.name == "sqlite":
        rows = [
            (pos, entry.body, prev, here, detached_header(entry))
            for pos, entry, prev, here in placed
        ]
        columns: Sequence[str] = _SQLITE_COLUMNS
    else:
        rows = [(pos, *fields, body, prev, here) for pos, (fields, body), prev, here in placed]
        columns = _COLUMNS
    if rows:
        apply_change(db, InsertRows(decision.name, columns, rows))


def _tip(db: Connection) -> Tip:
    newest = select(decision.c.pos, decision.c.hash).order_by(decision.c.pos.desc()).limit(1)
    found = db.execute(newest).first()
    return Tip(found.pos, found.hash) if found else Tip(0, FIRST_PREV)


def _without_known(db: Connection, entries: Sequence[Entry]) -> list[Entry]:
    """Drops entries that the log has already, and repeats within `entries`."""
    by_id = {entry.fields.event_id: entry for entry in reversed(entries)}
    ids = [entry.fields.event_id for entry in entries]
    known = set(db.scalars(select(decision.c.event_id).where(decision.c.event_id.in_(ids))))
    fresh = [event_id for event_id in dict.fromkeys(ids) if event_id not in known]
    return [by_id[event_id] for event_id in fresh]


class _Answer(NamedTuple):
    message: bytes
    view_position: int


def _last_answers(db: Connection, due: Sequence[FirstBinding]) -> dict[str, _Answer]:
    """The last answer that scored each pod, by its uid."""
    theirs = decision.c.pod_uid.in_([bound.pod_uid for bound in due])
    scored = select(func.max(decision.c.pos)).where(
        theirs, decision.c.kind == PrioritizeDecided.TYPE
    )
    last = decision.c.pos.in_(scored.group_by(decision.c.pod_uid))
    found = db.execute(
        select(decision.c.pod_uid, decision.c.body, decision.c.view_position).where(last)
    )
    return {uid: _Answer(message_in(body), view) for uid, body, view in found}


def _with_answer(
    db: Connection, bound: FirstBinding, answer: _Answer | None, moved_at: int
) -> tuple[FirstBinding, bytes | None]:
    """Marks the ordinal as reassigned if the node did not have that row in the answer's view."""
    if answer is None:
        return bound, None
    view = answer.view_position
    is_same = bound.ordinal < 0 or view >= moved_at or had_row(db, bound, view)
    return bound if is_same else bound._replace(ordinal=ROW_REASSIGNED), answer.message
