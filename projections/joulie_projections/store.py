"""Rows, position and manifest: committed together or not at all, by the one holder of the lease."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import msgspec
from sqlalchemy import Connection, Engine, insert, select, text, update

from joulie_bus.errors import Fenced
from joulie_projections import rows as rowlib
from joulie_projections.commit import Checkpoint, Commit, Inputs
from joulie_projections.manifest import Manifest
from joulie_projections.rows import Row
from joulie_projections.tables import STATE_TABLES, batch, checkpoint, gone, quarantine

NAME = "projector"


_INPUTS = msgspec.msgpack.Decoder(Inputs)
_DIGESTS = msgspec.msgpack.Decoder(dict[str, bytes])


class Store:
    """The projector's side of the database. Every method is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def acquire(
        self, owner: str, until: int, now: int, incarnation: str, is_gone: Callable[[str], bool]
    ) -> Checkpoint | None:
        """Takes the lease if it is free, over, or its owner is known to be gone: a new epoch."""
        with self._engine.begin() as db:
            found = db.execute(select(checkpoint).where(checkpoint.c.name == NAME)).first()
            if found is None:
                db.execute(insert(checkpoint).values(**_first(owner, until, incarnation)))
            elif found.until < now or is_gone(found.owner):
                db.execute(
                    update(checkpoint)
                    .where(checkpoint.c.name == NAME)
                    .values(owner=owner, until=until, epoch=found.epoch + 1)
                )
            else:
                return None
            return read_checkpoint(db)

    def renew(self, epoch: int, until: int) -> None:
        with self._engine.begin() as db:
            touched = db.execute(
                update(checkpoint)
                .where(checkpoint.c.name == NAME, checkpoint.c.epoch == epoch)
                .values(until=until)
            )
            if touched.rowcount != 1:
                raise Fenced(epoch, -1)

    def commit(self, epoch: int, work: Commit) -> None:
        """The fence is the first statement: who is no longer the projector changes nothing."""
        before = work.manifest.p_from - 1
        with self._engine.begin() as db:
            touched = db.execute(
                update(checkpoint)
                .where(
                    checkpoint.c.name == NAME,
                    checkpoint.c.epoch == epoch,
                    checkpoint.c.position == before,
                )
                .values(
                    position=work.manifest.p_to,
                    inputs=msgspec.msgpack.encode(work.inputs),
                    digests=_packed(work.digests),
                    head=work.manifest.head,
                )
            )
            if touched.rowcount != 1:
                raise Fenced(epoch, before)
            _write_rows(db, work.rows, work.manifest.p_to)
            _write_manifest(db, work.manifest)
            if work.poison:
                db.execute(insert(quarantine), [poison._asdict() for poison in work.poison])

    def checkpoint(self) -> Checkpoint | None:
        with self._engine.connect() as db:
            return read_checkpoint(db)

    def load(
        self, tables: Sequence[str] = tuple(rowlib.STATES)
    ) -> tuple[Checkpoint | None, list[Row]]:
        """Rows and position of one moment."""
        with self._engine.connect() as db, db.begin():
            return read_checkpoint(db), read_rows(db, tables)

    def changes_since(
        self, position: int, tables: Sequence[str]
    ) -> tuple[Checkpoint | None, list[Row]]:
        """What a reader at `position` lacks, of one moment."""
        with self._engine.connect() as db, db.begin():
            found = read_checkpoint(db)
            changed = read_rows(db, tables, after=position)
            left = db.execute(
                select(gone.c.table_name, gone.c.key).where(gone.c.position > position)
            )
            alive = {(row.table, row.key) for row in changed}
            changed.extend(
                Row(table, key, None)
                for table, key in left
                if table in tables and (table, key) not in alive
            )
            return found, changed


def _first(owner: str, until: int, incarnation: str) -> dict[str, object]:
    return {
        "name": NAME,
        "position": 0,
        "epoch": 1,
        "owner": owner,
        "until": until,
        "inputs": msgspec.msgpack.encode({}),
        "digests": _packed(rowlib.no_rows()),
        "head": b"",
        "incarnation": incarnation,
    }


def _packed(digests: Mapping[str, int]) -> bytes:
    return msgspec.msgpack.encode({k: v.to_bytes(32) for k, v in digests.items()})


def read_checkpoint(db: Connection) -> Checkpoint | None:
    found = db.execute(select(checkpoint).where(checkpoint.c.name == NAME)).first()
    if found is None:
        return None
    packed = _DIGESTS.decode(found.digests)
    digests = {table: int.from_bytes(value) for table, value in packed.items()}
    return Checkpoint(
        found.position,
        found.epoch,
        _INPUTS.decode(found.inputs),
        digests,
        found.head,
        found.incarnation,
    )


def read_rows(db: Connection, tables: Sequence[str], after: int = -1) -> list[Row]:
    rows: list[Row] = []
    for name in tables:
        table = STATE_TABLES[name]
        found = db.execute(select(table.c.key, table.c.body).where(table.c.position > after))
        rows.extend(Row(name, key, body) for key, body in found)
    return rows


def _write_rows(db: Connection, rows: Sequence[Row], position: int) -> None:
    puts: dict[str, list[tuple[object, ...]]] = defaultdict(list)
    drops: dict[str, list[tuple[object, ...]]] = defaultdict(list)
    for row in rows:
        if row.body is None:
            drops[row.table].append((row.key,))
        else:
            puts[row.table].append((row.key, position, row.body))
    for name, values in puts.items():
        db.exec_driver_sql(
            f"INSERT INTO {STATE_TABLES[name].name} (key, position, body) VALUES (?, ?, ?) "
            "ON CONFLICT (key) DO UPDATE SET position = excluded.position, body = excluded.body",
            values,
        )
    for name, keys in drops.items():
        db.exec_driver_sql(f"DELETE FROM {STATE_TABLES[name].name} WHERE key = ?", keys)
        db.execute(
            text(
                "INSERT INTO gone (table_name, key, position) VALUES (:table, :key, :position) "
                "ON CONFLICT (table_name, key) DO UPDATE SET position = excluded.position"
            ),
            [{"table": name, "key": key, "position": position} for (key,) in keys],
        )


def _write_manifest(db: Connection, manifest: Manifest) -> None:
    values = manifest._asdict() | {"ranges": msgspec.msgpack.encode(manifest.ranges)}
    db.execute(insert(batch).values(**values))
