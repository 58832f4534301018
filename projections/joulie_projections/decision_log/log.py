"""The decision log: gapless, chained, append-only. Every answer has exactly one entry.

Its only writer holds the end of the log in memory, appends behind that end, and signs that end. It
moves away rows behind the end that it did not write, in the transaction that writes the entry
which belongs there.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    delete,
    exists,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from joulie_bus.errors import DatabaseSetBack, Fenced, RecordDamaged
from joulie_bus.events import OutcomeSeen
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain import log_end
from joulie_projections.chain.entry import Entry, EntryFields
from joulie_projections.chain.head import Commitment, Head, head_in
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.log_end import EMPTY, ChainedEntry, End, Step
from joulie_projections.chain.merkle import TILE
from joulie_projections.decision_log import foreign, tree
from joulie_projections.decision_log.anchored import Anchored
from joulie_projections.decision_log.beginning import Beginning, beginning_in
from joulie_projections.decision_log.head_rows import (
    COMPARED,
    forked_at,
    insert_heads,
    later_heads,
    missing_heads,
    row_of,
)
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.last_answers import last_answers, with_answer
from joulie_projections.decision_log.position import NAME, decision_input
from joulie_projections.fold.commit import FirstBinding, Input
from joulie_projections.store.database import read_committed
from joulie_projections.store.row_name_table import newest_change
from joulie_projections.store.statements import InsertRows, apply_change
from joulie_projections.store.store import NAME as LEASE
from joulie_projections.store.store import empty_checkpoint, insert_new, read_cut, require_epoch
from joulie_projections.store.tables import checkpoint, decision, head, outcome_due

log = get_logger("decisions")
ACCEPTED_AT_ONCE = 1000
ATTEMPTS = 5  # to write an entry where another process inserts rows at the same time
_LEASE = checkpoint.alias("lease")
_MINE = checkpoint.c.name == NAME
_FORKED = "the log was forked at entry {}: a signed head names another hash of it"
Make = Callable[[Mapping[str, bytes]], Step]


class Tip(NamedTuple):
    """The position and the hash of the last entry."""

    pos: int
    hash: bytes


class Signature(NamedTuple):
    """What a head says beside the log itself."""

    incarnation: str
    position: int  # of the facts
    manifest: bytes
    read: Mapping[Stream, Input]  # how far their streams were read
    now: int


class DecisionLog:
    """The writer's side of the log. Each append is one transaction, fenced by the lease."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writing = read_committed(engine)
        self.end = EMPTY
        self.foreign = 0  # rows of others that this process moved
        self.problem = ""  # why nothing is signed any more; empty if something is
        self._ahead: dict[int, Head] = {}  # signed heads of entries that the log does not have yet
        self._lost: list[Head] = []  # those of entries that it has by now: the database lacks them
        self._signed_to = 0  # the entry of the newest head in the database
        self._last_row = 0  # entries up to this one may be there already, when the writer begins
        self._cut = 0  # rows before this entry are not a part of the chain
        self._tiles: list[bytes] = []  # roots of the newest tiles, which no head signs yet

    def read_to(self) -> int:
        """How far the stream of decisions was read."""
        return self.input().sequence

    def input(self) -> Input:
        """The last message of the stream of decisions that was read."""
        with self._engine.connect() as db:
            return decision_input(db)

    def continue_stream(self, epoch: int, created: str) -> None:
        """Records the identity of a new stream, which continues at the same position."""
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            read = msgspec.structs.replace(decision_input(db), created=created)
            db.execute(update(checkpoint).where(_MINE).values(inputs=_packed(read)))

    # --- the beginning ------------------------------------------------------------------------

    def beginning(self, known: Anchored, lost_key: str = "") -> Beginning:
        """The newest signed head whose entry the database has, and the log up to it."""
        with self._engine.connect() as db, db.begin():
            return beginning_in(db, known, lost_key)

    def recorded(self) -> tuple[int, Input]:
        """The end of the log that the database records, which other programs can set, too."""
        with self._engine.connect() as db, db.begin():
            position = db.scalar(select(checkpoint.c.position).where(_MINE)) or 0
            try:
                return position, decision_input(db)
            except RecordDamaged as error:
                what = "the log begins at its newest signed head, and records its end again"
                log.error("record_changed", table="checkpoint", why=str(error), what=what)
                return position, Input("", 0)

    def begin(self, epoch: int, found: Beginning, known: Anchored) -> None:
        """Begins at a signed head. From now on only this epoch writes the log.

        Readers see it up to that head, until the entries behind it were derived again.
        """
        end = found.end
        with self._writing.begin() as db:
            _claim(db, epoch, end)
            valid, moved = _without_false(db, end.pos, known.ring)
            forked, (cut, last_row) = forked_at(db, known, end.pos), (read_cut(db), _last_row(db))
            lost = missing_heads(db, known, cut.pos if cut else 1, end.pos)
        self.foreign += moved
        self.end, self._tiles, self._cut = end, [], cut.pos if cut else 0
        self._last_row = last_row
        self._signed_to = max([end.pos, *(each.pos for each in valid)])
        self.problem = _FORKED.format(forked) if forked else found.problem
        self._ahead, self._lost = {}, lost
        self._expect(known.ring, [*known.heads, *valid])

    def begin_empty(self, epoch: int) -> None:
        """Begins a log that is restored."""
        with self._writing.begin() as db:
            _claim(db, epoch, EMPTY)

    def accept_rows(self, epoch: int, last: int) -> None:
        """Takes rows behind a signed head as the database holds them: the stream that they came
        from is lost, and an administrator has continued the log beside another one."""
        while self.end.pos < last:
            after, until = self.end.pos, min(last, self.end.pos + ACCEPTED_AT_ONCE)
            with self._engine.connect() as db:
                between = decision.c.pos.between(after + 1, until)
                rows = db.execute(select(decision).where(between).order_by(decision.c.pos)).all()
            entries = [Entry(EntryFields(*row[1:7]), row.body) for row in rows]
            if not entries:
                return
            self.write(epoch, log_end.chained(self.end, entries, self.end.read))

    def _expect(self, ring: Ring, heads: Sequence[Head]) -> None:
        """Signs nothing before the log has the entries of these heads."""
        for each in heads:
            if each.pos <= self.end.pos or not ring.stands_alone(each):
                continue
            if self._ahead.setdefault(each.pos, each).hash != each.hash:
                self.problem = _FORKED.format(each.pos)

    @property
    def is_empty(self) -> bool:
        """Whether the database held no entry at the beginning, and none was written since."""
        return not (self.end.pos or self._last_row)

    @property
    def is_behind(self) -> bool:
        """Whether a signed head is of a later entry."""
        return bool(self._ahead)

    @property
    def is_derived(self) -> bool:
        """Whether the end is behind every row that was there at the beginning."""
        return self.end.pos >= self._last_row

    def move_underived(self, epoch: int, ring: Ring) -> int:
        """Moves the rows that no message of the stream led to, once all were read."""
        self._last_row = self.end.pos
        return self.examine(epoch, ring)

    # --- appending ----------------------------------------------------------------------------

    def append(self, epoch: int, records: Sequence[Record], created: str) -> int:
        """Adds the entries of messages that follow in the stream, in one transaction.

        Returns how many of the messages are no decisions. Raises DatabaseSetBack, without a change,
        if the database lacks the entry before them.
        """
        messages, end = log_end.take(records), self.end
        ids = [message.entry.fields.event_id for message in messages]
        return self._write(epoch, ids, lambda known: log_end.step_of(end, messages, created, known))

    def set_aside(self, epoch: int, record: Record, created: str) -> int:
        """Writes an unreadable entry for a message whose entry the database refuses."""
        made = log_end.set_aside(self.end, record, created, keeps_bytes=True)
        return self._write(epoch, made.ids, lambda _: made)

    def set_aside_digest(self, epoch: int, record: Record, created: str) -> int:
        """Without the bytes of the message, which the database refuses, too."""
        made = log_end.set_aside(self.end, record, created, keeps_bytes=False)
        return self._write(epoch, made.ids, lambda _: made)

    def write(self, epoch: int, made: Step) -> None:
        """Adds entries that are known to be new."""
        self._write(epoch, made.ids, lambda _: made)

    def _write(self, epoch: int, ids: Sequence[str], make: Make) -> int:
        made = self._written(epoch, ids, make)
        self.end = made.end
        self._tiles += made.tiles
        self._compare(made.rows)
        return made.refused

    def _compare(self, rows: Sequence[ChainedEntry]) -> None:
        """The entries with the heads that were signed of them before."""
        for row in rows if self._ahead else ():
            if (signed := self._ahead.pop(row.pos, None)) is None:
                continue
            if signed.hash == row.hash:
                self._lost.append(signed)
            else:
                self.problem = _FORKED.format(row.pos)

    def _written(self, epoch: int, ids: Sequence[str], make: Make) -> Step:
        for _ in range(ATTEMPTS):
            with contextlib.suppress(IntegrityError):  # a row of others is there
                if self.is_derived and (made := self._put(epoch, ids, make)) is not None:
                    return made
                return self._put_among_others(epoch, ids, make)
            self._last_row = max(self._last_row, self.end.pos + 1)
        return self._put_among_others(epoch, ids, make)

    def _put(self, epoch: int, ids: Sequence[str], make: Make) -> Step | None:
        """None, without a change, if a row of others has the id of one of the messages."""
        with self._writing.begin() as db:
            known = _known(db, ids, self.end.pos, self._cut)
            if known.untrusted:
                return None
            made = make(known.bodies)
            if _advance(db, epoch, self.end, made.end):
                _insert(db, made.rows)
                _settle(db, made.settled)
            return made

    def _put_among_others(self, epoch: int, ids: Sequence[str], make: Make) -> Step:
        """Entries that are there already stay as they are; rows that differ are moved."""
        moved = 0
        with self._writing.begin() as db:
            known = _known(db, ids, self.end.pos, self._cut)
            made = make(known.bodies)
            if not _advance(db, epoch, self.end, made.end):
                return made
            same = _derived_before(db, made.rows)
            last = self.end.pos + same
            if same < len(made.rows) or known.untrusted:
                moved = _move_behind(db, last, known.untrusted)
                self._last_row = made.end.pos
            _insert(db, made.rows[same:])
            _settle(db, made.settled)
        self.foreign += moved
        return made

    # --- what others wrote ----------------------------------------------------------------------

    def examine(self, epoch: int, ring: Ring) -> int:
        """Moves rows behind the end of the log and heads that no key signed, and records the end
        again if another process changed that; returns how many rows were put right."""
        with self._writing.begin() as db:
            cut = read_cut(db)
            found = 0 if _is_recorded(db, epoch, self.end) else 1
            if found:
                _record_again(db, epoch, self.end, self.end)
            if self.is_derived and _last_row(db) > self.end.pos:
                found += _move_behind(db, self.end.pos)
            found += _without_false(db, self._signed_to, ring).moved
        self._cut = cut.pos if cut else 0
        self.foreign += found
        return found

    # --- outcomes -----------------------------------------------------------------------------

    def due(self, at_most: int) -> list[tuple[FirstBinding, bytes | None]]:
        """Bound pods without an outcome, each with the last answer that scored it."""
        last = self.end.pos
        with self._engine.connect() as db, db.begin():
            oldest = select(outcome_due).order_by(outcome_due.c.position).limit(at_most)
            due = list(map(FirstBinding._make, db.execute(oldest)))
            if not due:
                return []  # as nearly always: the writer asks four times a second
            answers, moved_at = last_answers(db, due, last), newest_change(db)
            return [with_answer(db, bound, answers.get(bound.pod_uid), moved_at) for bound in due]

    def drop_settled(self, epoch: int) -> None:
        """Deletes due pods that have an outcome: a pod seen bound again becomes due again."""
        has_one = select(decision.c.pos).where(
            decision.c.pod_uid == outcome_due.c.pod_uid,
            decision.c.kind == OutcomeSeen.TYPE,
            decision.c.pos <= self.end.pos,
        )
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            db.execute(delete(outcome_due).where(has_one.exists()))

    # --- heads --------------------------------------------------------------------------------

    def sign(self, epoch: int, signer: Signer, beside: Signature) -> Head | None:
        """Signs the end of the log; None if it is signed already or the key may not sign it.

        Raises DatabaseSetBack if the database lacks that entry: anchored, such a head would hide
        the newer ones that the database has lost.
        """
        end = self.end
        is_due = end.pos > self._signed_to and not (self.problem or self._ahead)
        if not is_due or not signer.may_sign(end.pos):
            return None
        made = signer.sign(_commitment(end, beside))
        with self._writing.begin() as db:
            require_epoch(db, epoch)
            _require_entry(db, end)
            moved = _without_false(db, self._signed_to, signer.public).moved
            self._put_tiles(db)
            db.execute(insert(head).values(**row_of(made, end.quota.saved)))
        self.foreign += moved
        self._signed_to, self._tiles = end.pos, []
        return made

    def _put_tiles(self, db: Connection) -> None:
        tree.put_tiles(db, self.end.pos // TILE - len(self._tiles), self._tiles)

    def key_of_another(self, ring: Ring) -> str:
        """The id of the key that signed the newest entry with a head, if no key of the ring signed
        any; else empty."""
        other = ""
        newest = select(head.c.note, decision.c.hash).order_by(head.c.pos.desc())
        joined = newest.join(decision, decision.c.pos == head.c.pos)
        with (
            self._engine.connect() as db,
            db.execute(joined.execution_options(yield_per=COMPARED)) as rows,
        ):
            for note, here in rows:
                made = head_in(note)
                if made is not None and not ring.flaw_of(made):
                    return ""
                other = other or (made.key_id if made is not None and made.hash == here else "")
        return other

    def signed_to(self, epoch: int) -> Tip:
        """The entry of the newest head."""
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            here = select(decision.c.hash).where(decision.c.pos == self._signed_to)
            return Tip(self._signed_to, db.scalar(here) or EMPTY.hash)

    def heed(self, known: Anchored) -> None:
        """Heads that came into their stream since the log begins here. One whose entry is in the
        database, which lacks the head, was committed and then lost in a failover."""
        with self._engine.connect() as db:
            lost = missing_heads(db, known, max(1, self._cut), self.end.pos)
            forked = forked_at(db, known, self.end.pos)
        held = {each.id for each in self._lost}
        self._lost = [*self._lost, *(each for each in lost if each.id not in held)]
        if forked:
            self.problem = _FORKED.format(forked)
        self._expect(known.ring, known.heads)

    def restore_lost_heads(self, epoch: int) -> None:
        """Inserts the heads that an older copy of the database lacks, of entries that it has."""
        if not (lost := self._lost):
            return
        with self._writing.begin() as db:
            require_epoch(db, epoch)
            self._put_tiles(db)
            insert_heads(db, lost)
        self._signed_to = max(self._signed_to, *(each.pos for each in lost))
        self._lost, self._tiles = [], []

    # --- a log from an archive ------------------------------------------------------------------

    def restore(self, epoch: int, made: Step, heads: Sequence[Head]) -> None:
        """Adds entries with the heads that were signed before, to a log that is being restored."""
        self.write(epoch, made)
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            self._put_tiles(db)
            insert_heads(db, heads)
        self._tiles = []


# --- the record of the end ------------------------------------------------------------------------


def _leads(epoch: int) -> ColumnElement[bool]:
    """The lease of the projector, in the statement that writes: no isolation is relied on."""
    return exists().where(_LEASE.c.name == LEASE, _LEASE.c.epoch == epoch)


def _packed(read: Input) -> bytes:
    return msgspec.msgpack.encode({Stream.DEC: read})


def _recorded(end: End) -> dict[str, object]:
    return {"position": end.pos, "head": end.hash, "inputs": _packed(end.read)}


def _is_record_of(end: End) -> Sequence[ColumnElement[bool]]:
    return [checkpoint.c[name] == value for name, value in _recorded(end).items()]


def _claim(db: Connection, epoch: int, end: End) -> None:
    """Makes the epoch the only one that writes, at this end."""
    insert_new(db, checkpoint, empty_checkpoint(NAME))
    claimed = update(checkpoint).where(_MINE, checkpoint.c.epoch <= epoch, _leads(epoch))
    if db.execute(claimed.values(epoch=epoch, **_recorded(end))).rowcount != 1:
        raise Fenced(epoch, -1)


def _advance(db: Connection, epoch: int, before: End, after: End) -> bool:
    """Records the new end; False if that was done before, and the reply to the COMMIT was lost."""
    mine = (_MINE, checkpoint.c.epoch == epoch, *_is_record_of(before), _leads(epoch))
    advanced = update(checkpoint).where(*mine).values(**_recorded(after))
    if db.execute(advanced).rowcount == 1:
        return True
    if _is_recorded(db, epoch, after):
        return False
    _record_again(db, epoch, before, after)
    return True


def _is_recorded(db: Connection, epoch: int, end: End) -> bool:
    known = select(checkpoint.c.name).where(_MINE, checkpoint.c.epoch == epoch, *_is_record_of(end))
    return db.scalar(known) is not None


def _record_again(db: Connection, epoch: int, before: End, after: End) -> None:
    """Another process changed the record, and not the log: it is not what the writer goes by."""
    _require_entry(db, before)
    mine = (_MINE, checkpoint.c.epoch == epoch, _leads(epoch))
    if db.execute(update(checkpoint).where(*mine).values(**_recorded(after))).rowcount != 1:
        raise Fenced(epoch, before.pos)
    log.error("record_changed", table="checkpoint", what="recorded the end of the log again")


def _require_entry(db: Connection, end: End) -> None:
    """Raises DatabaseSetBack if the database lacks the last entry."""
    here = db.scalar(select(decision.c.hash).where(decision.c.pos == end.pos))
    if end.pos and here != end.hash:
        raise DatabaseSetBack("entry of the decision log", _last_row(db), end.pos)


def _last_row(db: Connection) -> int:
    return db.scalar(select(func.max(decision.c.pos))) or 0


# --- entries --------------------------------------------------------------------------------------

_COLUMNS = [column.name for column in decision.c]
_SQLITE_COLUMNS = ("pos", "body", "prev", "hash")  # SQLite generates the others


def _insert(db: Connection, placed: Sequence[ChainedEntry]) -> None:
    rows: list[tuple[object, ...]]
    if db.dialect.name == "sqlite":
        rows = [(pos, entry.body, prev, here) for pos, entry, prev, here in placed]
        columns: Sequence[str] = _SQLITE_COLUMNS
    else:
        rows = list(map(_columns_of, placed))
        columns = _COLUMNS
    if rows:
        apply_change(db, InsertRows(decision.name, columns, rows))


def _columns_of(row: ChainedEntry) -> tuple[object, ...]:
    return (row.pos, *row.entry.fields, row.entry.body, row.prev, row.hash)


def _settle(db: Connection, pod_uids: Sequence[str]) -> None:
    if pod_uids:
        db.execute(delete(outcome_due).where(outcome_due.c.pod_uid.in_(pod_uids)))


class _Known(NamedTuple):
    """Entries with the ids of messages."""

    bodies: Mapping[str, bytes]
    untrusted: Sequence[int]  # rows that the chain does not hold: a trim left them, or others wrote


def _known(db: Connection, ids: Sequence[str], last: int, cut: int) -> _Known:
    columns = decision.c.event_id, decision.c.pos, decision.c.body
    rows = db.execute(select(*columns).where(decision.c.event_id.in_(ids))).all()
    inside = {row.event_id: row.body for row in rows if cut <= row.pos <= last}
    return _Known(inside, [row.pos for row in rows if row.pos < cut])


def _derived_before(db: Connection, rows: Sequence[ChainedEntry]) -> int:
    """How many of the rows the database has already, in every column, from the first one on."""
    if not rows:
        return 0
    between = decision.c.pos.between(rows[0].pos, rows[-1].pos)
    found = db.execute(select(decision).where(between).order_by(decision.c.pos))
    same = 0
    for row, mine in zip(found, rows, strict=False):
        if tuple(row) != _columns_of(mine):
            break
        same += 1
    return same


# --- heads ----------------------------------------------------------------------------------------


def _commitment(end: End, beside: Signature) -> Commitment:
    return Commitment(
        size=end.pos,
        root=end.tree.root,
        hash=end.hash,
        signed_at=beside.now,
        incarnation=beside.incarnation,
        position=beside.position,
        manifest=beside.manifest,
        read={**beside.read, Stream.DEC: end.read},
        messages=end.messages,
        quota=end.quota.digest,
    )


class _Later(NamedTuple):
    valid: list[Head]
    moved: int  # rows that no key of the log signed


def _without_false(db: Connection, pos: int, ring: Ring) -> _Later:
    """The heads behind an entry; moves rows that are none of the log."""
    valid, false = later_heads(db, pos, ring)
    return _Later(valid, foreign.move_heads(db, false))


def _move_behind(db: Connection, last: int, others: Sequence[int] = ()) -> int:
    """The rows behind an entry, with the heads of them: the guards let no signed entry go."""
    later = list(db.scalars(select(head.c.id).where(head.c.pos > last)))
    return foreign.move_heads(db, later) + foreign.move_entries(db, last, others)
