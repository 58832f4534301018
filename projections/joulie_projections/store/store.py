"""Commits rows, position and manifest in one transaction, fenced by the epoch of the lease."""

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, Engine, Table, bindparam, delete, func, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import DatabasePromoted, DatabaseSetBack, Fenced, StateDamaged
from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.commit import (
    Checkpoint,
    Commit,
    Cut,
    FirstBinding,
    Inputs,
    Poison,
    Snapshot,
)
from joulie_projections.fold.manifest import CODE_VERSION, Manifest
from joulie_projections.state import rows as rowlib
from joulie_projections.state.rows import Digests, Row
from joulie_projections.store.database import read_committed
from joulie_projections.store.row_name_table import (
    insert_names,
    name_rows_of,
)
from joulie_projections.store.statements import (
    DeleteRows,
    Fence,
    InsertRows,
    RowChange,
    apply_change,
)
from joulie_projections.store.tables import (
    STATE_TABLES,
    batch,
    checkpoint,
    cut,
    gone,
    outcome_due,
    quarantine,
    rebuilt,
    snapshot,
)
from joulie_projections.twin.row_names import RowName

NAME = "projector"
PORTION = 1000  # rows per read
_INPUTS = msgspec.msgpack.Decoder(Inputs)
_DIGESTS = msgspec.msgpack.Decoder(dict[str, bytes])
_TIMELINE = "timeline"  # of the server, in the notes of a connection
_ROW = ("key", "position", "body")
_GONE = ("table_name", "key", "position")
_ADVANCE_CHECKPOINT = Fence(
    update(checkpoint)
    .where(
        checkpoint.c.name == NAME,
        checkpoint.c.epoch == bindparam("by"),
        checkpoint.c.position == bindparam("before"),
    )
    .values(
        position=bindparam("to"),
        inputs=bindparam("inputs"),
        digests=bindparam("digests"),
        head=bindparam("head"),
    )
    .returning(checkpoint.c.generation)
)


def _advance_values(epoch: int, before: int, work: Commit) -> dict[str, object]:
    return {
        "by": epoch,
        "before": before,
        "to": work.manifest.p_to,
        "inputs": msgspec.msgpack.encode(work.inputs),
        "digests": pack_digests(work.digests),
        "head": work.manifest.head,
    }


class Progress(NamedTuple):
    incarnation: str
    position: int
    until: int  # of the lease; the projector sets another one each second
    behind_s: float  # infinite if not known


class GenerationInfo(NamedTuple):
    """How a generation of the rows was built."""

    fold_version: str
    at: int
    poison: Sequence[Poison] = ()  # messages that were folded before and are now in quarantine


_UNCHANGED = ("epoch", "owner", "until", "position", "inputs", "head")  # before the lease is taken
_LEASE = select(checkpoint.c.until, checkpoint.c.owner)


class Store:
    """The projector's side of the database. Every method is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._claiming = read_committed(engine)
        self._timeline = ""  # of the server, in this incarnation; empty if not known
        # In PostgreSQL a commit is a single statement, which needs no BEGIN and COMMIT.
        self._commit_engine = (
            engine.execution_options(isolation_level="AUTOCOMMIT")
            if engine.dialect.name == "postgresql"
            else engine
        )

    def acquire(
        self, owner: str, lease_s: float, incarnation: str, is_gone: Callable[[str], bool]
    ) -> Checkpoint | None:
        """Takes the lease in a new epoch if it is free, expired, or its owner has ended.

        Looks without a lock first: a standby must neither delay the commits of the projector that
        leads nor fail because of them.
        """
        with self._engine.connect() as db:
            held = db.execute(_LEASE.where(checkpoint.c.name == NAME)).first()
            now = clock_of(db)
        if held is not None and held.until >= now and not is_gone(held.owner):
            return None
        with self._claiming.begin() as db:
            insert_new(db, checkpoint, _first_checkpoint(incarnation))
            mine = checkpoint.c.name == NAME
            found = db.execute(select(checkpoint).where(mine)).one()
            if found.until >= clock_of(db) and not is_gone(found.owner):
                return None
            until, epoch = clock_of(db) + int(lease_s * 1e9), found.epoch + 1
            taken = {"owner": owner, "until": until, "epoch": epoch}
            # Nothing was committed and no lease was renewed or taken since: one of two takes it.
            same = [checkpoint.c[name] == getattr(found, name) for name in _UNCHANGED]
            if db.execute(update(checkpoint).where(mine, *same).values(**taken)).rowcount != 1:
                return None
            return read_checkpoint(db)

    def renew(
        self,
        epoch: int,
        lease_s: float,
        position: int,
        behind: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """`position` was committed in this epoch; a database that lacks it was set back. The rows
        include everything that the streams held `behind()` seconds ago; it is called last, because
        the call may have waited for its turn.
        """
        with self._engine.begin() as db:
            now = clock_of(db)
            behind_s = behind()
            complete_at = 0 if math.isinf(behind_s) else now - int(behind_s * 1e9)
            renewed = {"until": now + int(lease_s * 1e9), "complete_at": complete_at}
            mine = (checkpoint.c.name == NAME, checkpoint.c.epoch == epoch)
            kept = update(checkpoint).where(*mine, checkpoint.c.position >= position)
            if db.execute(kept.values(**renewed)).rowcount != 1:
                raise _fenced(db, epoch, position)

    def progress(self) -> "Progress | None":
        """What the last renewal of the lease shows a reader that does not reach the broker."""
        with self._engine.connect() as db:
            found = db.execute(select(checkpoint).where(checkpoint.c.name == NAME)).first()
            now = clock_of(db)
        if found is None or not found.epoch:
            return None
        age_s = (now - found.complete_at) / 1e9 if found.complete_at else math.inf
        return Progress(found.incarnation, found.position, found.until, max(0.0, age_s))

    def release(self, epoch: int) -> None:
        """Lets another projector take the lease at once."""
        self._change(epoch, until=0)

    def was_promoted(self, epoch: int) -> bool:
        """Whether the database server is on another timeline than when the incarnation began.

        PostgreSQL begins a timeline when a standby is promoted or a backup is restored: commits of
        the time before may be lost then, and no row shows it.
        """
        with self._engine.begin() as db:
            known = db.scalar(select(checkpoint.c.timeline).where(checkpoint.c.name == NAME))
            current = _timeline(db)
        self._timeline = known or current
        if current and not known:
            self._change(epoch, timeline=current)
        return bool(known and current and known != current)

    def reset_incarnation(self, epoch: int, position: int, incarnation: str) -> None:
        """Sets a new incarnation, so that every reader reloads all rows. `position` was read or
        committed in this epoch; a database that lacks it was set back again."""
        with self._claiming.begin() as db:
            current = _timeline(db)
            mine = (checkpoint.c.name == NAME, checkpoint.c.epoch == epoch)
            reset = update(checkpoint).where(*mine, checkpoint.c.position >= position)
            values = {"incarnation": incarnation, "timeline": current}
            if db.execute(reset.values(**values)).rowcount != 1:
                raise _fenced(db, epoch, position)
        self._timeline = current

    def record_again(self, found: Checkpoint) -> None:
        """Puts a changed record of the facts right."""
        inputs = msgspec.msgpack.encode(found.inputs)
        self._change(found.epoch, position=found.position, inputs=inputs, head=found.head)

    def continue_streams(self, epoch: int, created: Mapping[Stream, str]) -> None:
        """Records the identities of new streams, which continue at the same positions."""
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            held = read_checkpoint(db)
            assert held is not None, "a lease was taken"
            inputs = {
                stream: msgspec.structs.replace(read, created=created.get(stream, read.created))
                for stream, read in held.inputs.items()
            }
            mine = update(checkpoint).where(checkpoint.c.name == NAME)
            db.execute(mine.values(inputs=msgspec.msgpack.encode(inputs)))

    def _change(self, epoch: int, **values: object) -> None:
        with self._engine.begin() as db:
            mine = (checkpoint.c.name == NAME, checkpoint.c.epoch == epoch)
            if db.execute(update(checkpoint).where(*mine).values(**values)).rowcount != 1:
                raise Fenced(epoch, -1)

    def commit(self, epoch: int, work: Commit) -> None:
        """Raises Fenced, without a change, if another projector holds the lease, and
        DatabasePromoted if the server was promoted: its lease and its commits may be lost.
        """
        before = work.manifest.p_from - 1
        with self._commit_engine.begin() as db:
            self._require_timeline(db, epoch, work.manifest)
            apply = _ADVANCE_CHECKPOINT.apply(
                db, _advance_values(epoch, before, work), changes_of(work)
            )
            if apply is None and not _is_committed(read_checkpoint(db), epoch, work.manifest):
                raise _fenced(db, epoch, before)

    def append_manifests(
        self,
        epoch: int,
        manifests: Sequence[Manifest],
        poison: Sequence[Poison],
        named: Sequence[RowName],
    ) -> None:
        """For a restore: the positions of facts that are not folded. The rows stay as they are."""
        first, last = manifests[0], manifests[-1]
        held = self.checkpoint()
        assert held is not None, "a lease was taken"
        before = Commit(last, (), held.inputs, held.digests)
        values = _advance_values(epoch, first.p_from - 1, before)
        changes: list[RowChange] = [_insert_manifests(manifests)]
        if poison:
            changes.append(InsertRows(quarantine.name, Poison._fields, poison))
        if named:
            changes.append(insert_names(named))
        with self._commit_engine.begin() as db:
            if _ADVANCE_CHECKPOINT.apply(db, values, changes) is None:
                raise _fenced(db, epoch, first.p_from - 1)

    def _require_timeline(self, db: Connection, epoch: int, manifest: Manifest) -> None:
        """Asks each connection once: none outlives the promotion of a server."""
        if not self._timeline:
            return
        if _TIMELINE not in db.info:
            db.info[_TIMELINE] = _timeline(db)
        if db.info[_TIMELINE] in ("", self._timeline):
            return
        found, before = read_checkpoint(db), manifest.p_from - 1
        is_ours = found is not None and (found.epoch, found.position) == (epoch, before)
        if is_ours or _is_committed(found, epoch, manifest):
            raise DatabasePromoted(before)
        raise _fenced(db, epoch, before)

    def checkpoint(self) -> Checkpoint | None:
        with self._engine.connect() as db:
            return read_checkpoint(db)

    def load(
        self, tables: Sequence[str] = tuple(rowlib.STATES)
    ) -> tuple[Checkpoint | None, list[Row]]:
        """Rows and position of one database snapshot."""
        with self._engine.connect() as db, db.begin():
            found = read_checkpoint(db)
            return found, read_rows(db, tables, found.generation) if found else []

    @contextlib.contextmanager
    def reading(
        self, tables: Sequence[str]
    ) -> Generator[tuple[Checkpoint | None, Iterator[list[Row]]], None, None]:
        """Like `load`, in portions, so that not all rows are in memory at once."""
        with self._engine.connect() as db, db.begin():
            found = read_checkpoint(db)
            yield found, read_portions(db, tables, found.generation) if found else iter(())

    def changes_since(
        self, position: int, tables: Sequence[str]
    ) -> tuple[Checkpoint | None, list[Row] | None]:
        """The rows that changed after `position`, in one database snapshot.

        None instead of rows means that the reader has to load all of them: a trim removes the keys
        that were deleted before its cut.
        """
        with self._engine.connect() as db, db.begin():
            found = read_checkpoint(db)
            if found is None:
                return None, []
            if position < trimmed_to(db):
                return found, None
            changed = read_rows(db, tables, found.generation, after=position)
            left = db.execute(
                select(gone.c.table_name, gone.c.key).where(
                    gone.c.generation == found.generation, gone.c.position > position
                )
            )
            alive = {(row.table, row.key) for row in changed}
            changed.extend(
                Row(table, key, None)
                for table, key in left
                if table in tables and (table, key) not in alive
            )
            return found, changed

    def newest_snapshot(self) -> int:
        """Its position; 0 if another fold version made it, so that the next one is due at once: a
        replay by this version compares states from there on.
        """
        newest = select(snapshot.c.position, snapshot.c.fold_version)
        with self._engine.connect() as db:
            found = db.execute(newest.order_by(snapshot.c.position.desc()).limit(1)).first()
        return found.position if found and found.fold_version == CODE_VERSION else 0

    def save_snapshot(self, epoch: int, made: Snapshot, at_most: int) -> None:
        """Inserts a snapshot, and deletes the oldest ones beyond `at_most`."""
        with self._engine.begin() as db:
            require_epoch(db, epoch)
            reached = db.scalar(select(checkpoint.c.position).where(checkpoint.c.name == NAME)) or 0
            if reached < made.position:
                raise DatabaseSetBack("position", reached, made.position)
            insert_new(db, snapshot, made._asdict())
            newest = select(snapshot.c.position).order_by(snapshot.c.position.desc())
            kept = list(db.scalars(newest.limit(at_most)))
            db.execute(delete(snapshot).where(snapshot.c.position < min(kept)))

    # --- another generation of the rows -------------------------------------------------------

    def begin_generation(self) -> int:
        """Returns the number of the next generation, and deletes rows of unused ones."""
        with self._engine.begin() as db:
            found = read_checkpoint(db)
            assert found is not None, "there is nothing to rebuild"
            _drop_generations(db, but=found.generation)
            return found.generation + 1

    def fill(self, generation: int, rows: Sequence[Row], position: int) -> None:
        with self._engine.begin() as db:
            for change in changes_of_rows(rows, position):
                apply_change(db, change, generation)

    def activate_generation(
        self, epoch: int, generation: int, reached: Checkpoint, made: GenerationInfo
    ) -> None:
        """Makes readers use the generation, and releases the lease that the rebuild took.

        The rows are hashed once more: two concurrent rebuilds may have written to one generation.
        """
        with self._engine.begin() as db:
            touched = db.execute(
                update(checkpoint)
                .where(
                    checkpoint.c.name == NAME,
                    checkpoint.c.epoch == epoch,
                    checkpoint.c.position == reached.position,
                )
                .values(
                    generation=generation,
                    digests=pack_digests(reached.digests),
                    incarnation=reached.incarnation,
                    until=0,
                )
            )
            if touched.rowcount != 1:
                raise Fenced(epoch, reached.position)
            rows = read_rows(db, tuple(rowlib.STATES), generation)
            if rowlib.digests_of(rows) != reached.digests:
                raise StateDamaged(f"Generation {generation} of the rows", reached.position)
            digest = rowlib.state_digest(reached.digests)
            name_rows_of(db, generation, reached.position)
            values = [(generation, reached.position, made.fold_version, digest, made.at)]
            apply_change(
                db, InsertRows(rebuilt.name, [column.name for column in rebuilt.c], values)
            )
            if made.poison:
                apply_change(db, InsertRows(quarantine.name, Poison._fields, made.poison))

    def drop_old_generations(self) -> None:
        """Deletes the rows of all generations that are not in use."""
        with self._engine.begin() as db:
            found = read_checkpoint(db)
            if found is not None:
                _drop_generations(db, but=found.generation)


def clock_of(db: Connection) -> int:
    """The time of the database server, by which all projectors judge a lease."""
    if db.dialect.name != "postgresql":
        return time.time_ns()
    micros = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
    return int(db.scalar(micros) or 0) * 1000


def _timeline(db: Connection) -> str:
    """Empty where there is none: in SQLite, and in services that hide it."""
    if db.dialect.name != "postgresql":
        return ""
    is_alone = db.get_execution_options().get("isolation_level") == "AUTOCOMMIT"
    try:
        with contextlib.nullcontext() if is_alone else db.begin_nested():
            return str(db.scalar(text("SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)")))
    except DBAPIError:
        return ""


def _fenced(db: Connection, epoch: int, position: int) -> Fenced:
    """The error of a projector that committed `position` in `epoch` and may not go on."""
    held = read_checkpoint(db)
    if held is not None and held.epoch == epoch and held.position < position:
        return DatabaseSetBack("position", held.position, position)
    return Fenced(epoch, position)


def _is_committed(found: Checkpoint | None, epoch: int, manifest: Manifest) -> bool:
    """Whether this commit is already stored: a connection that breaks during COMMIT leaves that
    open, and the commit is retried.
    """
    reached = (epoch, manifest.p_to, manifest.head)
    return found is not None and (found.epoch, found.position, found.head) == reached


def _drop_generations(db: Connection, but: int) -> None:
    for table in (*STATE_TABLES.values(), gone):
        db.execute(delete(table).where(table.c.generation != but))


def insert_new(db: Connection, table: Table, values: Mapping[str, object]) -> None:
    """Inserts the row unless its key exists."""
    if db.dialect.name == "postgresql":
        db.execute(postgresql.insert(table).values(**values).on_conflict_do_nothing())
    else:
        db.execute(sqlite.insert(table).values(**values).on_conflict_do_nothing())


def _first_checkpoint(incarnation: str) -> dict[str, object]:
    return empty_checkpoint(NAME) | {
        "digests": pack_digests(rowlib.empty_digests()),
        "incarnation": incarnation,
    }


def empty_checkpoint(name: str) -> dict[str, object]:
    return {
        "name": name,
        "position": 0,
        "epoch": 0,
        "owner": "",
        "until": 0,
        "inputs": msgspec.msgpack.encode({}),
        "digests": msgspec.msgpack.encode({}),
        "head": b"",
        "incarnation": "",
        "generation": 1,
    }


def pack_digests(digests: Digests) -> bytes:
    return msgspec.msgpack.encode({k: v.to_bytes(32) for k, v in digests.items()})


def unpack_digests(data: bytes) -> Digests:
    return {table: int.from_bytes(value) for table, value in _DIGESTS.decode(data).items()}


# Those of the oldest schema: a migration reads the checkpoint before it adds further columns.
_READ = tuple(
    checkpoint.c[name]
    for name in ("position", "epoch", "inputs", "digests", "head", "incarnation", "generation")
)


def read_checkpoint(db: Connection) -> Checkpoint | None:
    found = db.execute(select(*_READ).where(checkpoint.c.name == NAME)).first()
    if found is None or not found.epoch:
        return None
    return Checkpoint(
        found.position,
        found.epoch,
        _recorded(found.inputs),
        unpack_digests(found.digests),
        found.head,
        found.incarnation,
        found.generation,
    )


def _recorded(inputs: bytes) -> Inputs:
    """Nothing, if another process wrote what is no record: a projector begins at the manifests."""
    try:
        return _INPUTS.decode(inputs)
    except UNDECODABLE:
        return {}


def require_epoch(db: Connection, epoch: int) -> None:
    """Raises Fenced in another epoch; the row lock keeps the epoch until the transaction ends."""
    mine = select(checkpoint.c.epoch).where(checkpoint.c.name == NAME)
    if db.scalar(mine.with_for_update(read=True)) != epoch:
        raise Fenced(epoch, -1)


def read_rows(db: Connection, tables: Sequence[str], generation: int, after: int = -1) -> list[Row]:
    return list(chain.from_iterable(read_portions(db, tables, generation, after)))


def read_portions(
    db: Connection, tables: Sequence[str], generation: int, after: int = -1
) -> Iterator[list[Row]]:
    for name in tables:
        table = STATE_TABLES[name]
        wanted = select(table.c.key, table.c.body).where(table.c.generation == generation)
        if after >= 0:
            wanted = wanted.where(table.c.position > after)
        found = db.execute(wanted.execution_options(yield_per=PORTION))
        for some in found.partitions():
            yield [Row(name, key, body) for key, body in some]


def read_cut(db: Connection) -> Cut | None:
    """The newest cut."""
    return next(read_cuts(db), None)


def read_cuts(db: Connection) -> Iterator[Cut]:
    """Newest first. One that cannot be decoded is left out: the role of the trimmer can add it."""
    for found in db.execute(select(cut).order_by(cut.c.number.desc())):
        with contextlib.suppress(msgspec.DecodeError):
            yield Cut._make(found)._replace(inputs=_INPUTS.decode(found.inputs))


def trimmed_to(db: Connection) -> int:
    """The position of the newest cut."""
    return db.scalar(select(func.max(cut.c.p_to))) or 0


def changes_of_rows(rows: Sequence[Row], position: int) -> Iterator[RowChange]:
    puts: dict[str, list[tuple[object, ...]]] = defaultdict(list)
    drops: dict[str, list[str]] = defaultdict(list)
    for table, key, body in rows:
        if body is None:
            drops[table].append(key)
        else:
            puts[table].append((key, position, body))
    for table, values in puts.items():
        yield InsertRows(
            STATE_TABLES[table].name, _ROW, values, ("generation", "key"), is_generational=True
        )
    for table, keys in drops.items():
        yield DeleteRows(STATE_TABLES[table].name, keys)
    if left := [(table, key, position) for table, keys in drops.items() for key in keys]:
        keys_of_gone = ("generation", "table_name", "key")
        yield InsertRows(gone.name, _GONE, left, keys_of_gone, is_generational=True)


def changes_of(work: Commit) -> list[RowChange]:
    changes = list(changes_of_rows(work.rows, work.manifest.p_to))
    changes.append(_insert_manifests([work.manifest]))
    if work.poison:
        changes.append(InsertRows(quarantine.name, Poison._fields, work.poison))
    if work.named:
        changes.append(insert_names(work.named))
    if work.bound:
        changes.append(InsertRows(outcome_due.name, FirstBinding._fields, work.bound))
    return changes


def _insert_manifests(manifests: Sequence[Manifest]) -> InsertRows:
    encode = msgspec.msgpack.encode
    rows = [tuple(each._replace(ranges=encode(each.ranges))) for each in manifests]  # type: ignore[arg-type]
    return InsertRows(batch.name, Manifest._fields, rows)
