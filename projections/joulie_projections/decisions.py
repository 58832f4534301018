"""The decision log: gapless, chained, append-only. Every answer is there once."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, Engine, delete, func, insert, select

from joulie_bus import codec
from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    BindDecided,
    DecisionsDropped,
    FallbackAnswered,
    FilterDecided,
    OutcomeSeen,
    PreemptDecided,
    PrioritizeDecided,
    SettingsDeclared,
)
from joulie_bus.records import Record
from joulie_bus.subjects import Stream
from joulie_projections import statements
from joulie_projections.commit import Bound, Input
from joulie_projections.heads import Head, Signer
from joulie_projections.outcomes import MOVED
from joulie_projections.store import blank, insert_new, require_epoch, rows_moved_at
from joulie_projections.tables import checkpoint, decision, head, outcome_due

NAME = "decisions"
UNREADABLE = "unreadable"
FIRST_PREV = bytes(32)
LARGEST = 2**63 - 1  # that a column holds


class Entry(NamedTuple):
    """One row, but for its place in the chain. The columns repeat what the body says."""

    event_id: str
    kind: str
    pod_uid: str
    pod: str
    view_position: int
    decided_at: int
    body: bytes


class Tip(NamedTuple):
    """Where the log ends."""

    pos: int
    hash: bytes


def entry_of(record: Record) -> Entry:
    """What cannot be read is an entry too: nothing that was said is thrown away."""
    where = f"{record.stream} #{record.sequence}"
    try:
        return entry_of_body(record.data, where)
    except Undecodable:
        return Entry(f"{UNREADABLE}:{record.sequence}", UNREADABLE, "", "", 0, 0, record.data)


def entry_of_body(body: bytes, where: str) -> Entry:
    envelope = codec.open_envelope(body, where)
    event = codec.read(envelope, where)
    match event:
        case FilterDecided() | PrioritizeDecided() | PreemptDecided():
            pod, view, now = event.pod, event.basis.view, event.basis.now
            about = pod.uid, f"{pod.namespace}/{pod.name}"
        case BindDecided() | FallbackAnswered():
            view, now = event.basis.view, event.basis.now
            about = event.pod_uid, f"{event.namespace}/{event.name}"
        case OutcomeSeen():
            view, now = 0, envelope.ts
            about = event.pod_uid, f"{event.namespace}/{event.name}"
        case SettingsDeclared() | DecisionsDropped():
            view, now = 0, envelope.ts
            about = "", ""
        case _:
            raise Undecodable(where, f"{event.TYPE} is no entry of the decision log")
    _require_fitting(where, view, now)
    return Entry(envelope.id, event.TYPE, *about, view, now, body)


def _require_fitting(where: str, *numbers: int) -> None:
    """The wire holds more than a column does; one such number must not stop the whole log."""
    for number in numbers:
        if abs(number) > LARGEST:
            raise Undecodable(where, f"{number} fits no column")


def chain_hash(prev: bytes, body: bytes) -> bytes:
    return hashlib.sha256(prev + body).digest()


class DecisionLog:
    """The one writer's side. Each append is one transaction, fenced by the projector's lease."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def open(self) -> tuple[Tip, Input]:
        """Where the log ends, and how far its stream was read to get there."""
        with self._engine.begin() as db:
            insert_new(db, checkpoint, blank(NAME))
            inputs = db.scalar(select(checkpoint.c.inputs).where(checkpoint.c.name == NAME))
            read = msgspec.msgpack.decode(inputs or b"\x80", type=dict[Stream, Input])
            return _tip(db), read.get(Stream.DEC, Input("", 0))

    def read_to(self) -> int:
        """How far the stream of decisions was read."""
        with self._engine.connect() as db:
            inputs = db.scalar(select(checkpoint.c.inputs).where(checkpoint.c.name == NAME))
            read = msgspec.msgpack.decode(inputs or b"\x80", type=dict[Stream, Input])
            return read.get(Stream.DEC, Input("", 0)).sequence

    def append(self, epoch: int, entries: Sequence[Entry], read: Input) -> int:
        """Adds what is new of `entries`, and the position of the stream, together. How many."""
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            tip = _tip(db)
            rows = _chained(tip, _unknown(db, entries))
            statements.insert(db, decision.name, _COLUMNS, rows)
            inputs = msgspec.msgpack.encode({Stream.DEC: read})
            last = rows[-1][0] if rows else tip.pos
            db.execute(
                checkpoint.update()
                .where(checkpoint.c.name == NAME)
                .values(inputs=inputs, position=last, epoch=epoch)
            )
            told = [entry.pod_uid for entry in entries if entry.kind == OutcomeSeen.TYPE]
            if told:
                db.execute(delete(outcome_due).where(outcome_due.c.pod_uid.in_(told)))
            return len(rows)

    def due(self, at_most: int) -> list[tuple[Bound, bytes | None]]:
        """Pods that are bound and have no outcome yet, each with the last score it was given."""
        with self._engine.connect() as db, db.begin():
            oldest = select(outcome_due).order_by(outcome_due.c.position).limit(at_most)
            due = list(map(Bound._make, db.execute(oldest)))
            answers, moved_at = _last_answers(db, due), rows_moved_at(db)
            return [_with_answer(bound, answers.get(bound.pod_uid), moved_at) for bound in due]

    def settle(self, epoch: int) -> None:
        """A pod that is seen bound a second time is due again, and has its outcome already."""
        has_one = select(decision.c.pos).where(
            decision.c.pod_uid == outcome_due.c.pod_uid, decision.c.kind == OutcomeSeen.TYPE
        )
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            db.execute(delete(outcome_due).where(has_one.exists()))

    def sign_head(self, signer: Signer, now: int) -> Head | None:
        """Signs where the log ends; nothing if that has been signed already."""
        with self._engine.begin() as db:
            tip = _tip(db)
            signed = db.scalar(select(func.max(head.c.pos))) or 0
            if tip.pos <= signed:
                return None
            made = signer.sign(tip.pos, tip.hash, now)
            db.execute(insert(head).values(**made.as_row()))
            return made

    def keep_heads(self, epoch: int, heads: Sequence[Head]) -> None:
        """Heads that were signed before, as they were: for a log that is restored."""
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            if heads:
                db.execute(insert(head), [made.as_row() for made in heads])


_COLUMNS = [column.name for column in decision.c]


def _chained(tip: Tip, entries: Sequence[Entry]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    pos, prev = tip
    for entry in entries:
        pos, here = pos + 1, chain_hash(prev, entry.body)
        rows.append((pos, *entry, prev, here))
        prev = here
    return rows


def _tip(db: Connection) -> Tip:
    newest = select(decision.c.pos, decision.c.hash).order_by(decision.c.pos.desc()).limit(1)
    found = db.execute(newest).first()
    return Tip(found.pos, found.hash) if found else Tip(0, FIRST_PREV)


def _unknown(db: Connection, entries: Sequence[Entry]) -> list[Entry]:
    """Without those that are there already, and without repeats among themselves."""
    by_id = {entry.event_id: entry for entry in reversed(entries)}
    ids = [entry.event_id for entry in entries]
    known = set(db.scalars(select(decision.c.event_id).where(decision.c.event_id.in_(ids))))
    fresh = [event_id for event_id in dict.fromkeys(ids) if event_id not in known]
    return [by_id[event_id] for event_id in fresh]


class _Answer(NamedTuple):
    body: bytes
    view_position: int


def _last_answers(db: Connection, due: Sequence[Bound]) -> dict[str, _Answer]:
    """The last score that each pod was given, by its uid."""
    theirs = decision.c.pod_uid.in_([bound.pod_uid for bound in due])
    scored = select(func.max(decision.c.pos)).where(
        theirs, decision.c.kind == PrioritizeDecided.TYPE
    )
    last = decision.c.pos.in_(scored.group_by(decision.c.pod_uid))
    found = db.execute(
        select(decision.c.pod_uid, decision.c.body, decision.c.view_position).where(last)
    )
    return {uid: _Answer(body, view) for uid, body, view in found}


def _with_answer(bound: Bound, answer: _Answer | None, moved_at: int) -> tuple[Bound, bytes | None]:
    """The row that an answer names is no longer its node's for sure, once any node has gone."""
    if answer is None:
        return bound, None
    return bound._replace(ordinal=MOVED) if answer.view_position < moved_at else bound, answer.body
