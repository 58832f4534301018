"""Deletes archived rows before the newest cut, in portions.

The triggers refuse to delete rows that are not before a recorded cut. After a crash between two
portions the next run deletes the rest: readers use the cut, not the first row that is left.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Engine, Table, delete, func, insert, select
from sqlalchemy.exc import ProgrammingError

from joulie_bus.errors import NotTrimmed
from joulie_bus.events import PromiseKey, SettingsDeclared, StateSetBack
from joulie_migrations.cuts import TRIMMER
from joulie_projections.fold.commit import Cut
from joulie_projections.store.database import require_reachable
from joulie_projections.store.postgres import standby_lag_s
from joulie_projections.store.statements import run_in_sqlite
from joulie_projections.store.store import read_cut
from joulie_projections.store.tables import (
    batch,
    cut,
    decision,
    gone,
    head,
    quarantine,
    snapshot,
)

PORTION = 500  # rows per transaction, which bounds the wait of the projector's commits
PAGES = 500  # pages of the SQLite file that one transaction releases


class _TrimRule(NamedTuple):
    """A table, its ordering column, and the condition of the rows to delete."""

    table: Table
    key: ColumnElement[int]
    condition: ColumnElement[bool]


def _trim_rules(at: Cut) -> list[_TrimRule]:
    """Snapshots come first: a snapshot without its manifest counts as damaged.

    Settings, keys of promises and set-backs stay, because entries after the cut refer to them; so
    does the last removed node.
    """
    node_went = (
        select(func.max(gone.c.position)).where(gone.c.table_name == "node").scalar_subquery()
    )
    is_last_node = (gone.c.table_name == "node") & (gone.c.position == node_went)
    is_referred = decision.c.kind.in_((SettingsDeclared.TYPE, PromiseKey.TYPE, StateSetBack.TYPE))
    return [
        _TrimRule(snapshot, snapshot.c.position, snapshot.c.position < at.p_to),
        _TrimRule(decision, decision.c.pos, (decision.c.pos < at.pos) & ~is_referred),
        _TrimRule(head, head.c.pos, head.c.pos < at.pos),
        _TrimRule(batch, batch.c.p_to, batch.c.p_to < at.p_to),
        _TrimRule(gone, gone.c.position, (gone.c.position <= at.p_to) & ~is_last_node),
    ]


def require_trimmer(engine: Engine) -> None:
    """On PostgreSQL the user has to be a member of the role of the trimmer."""
    try:
        require_reachable(engine)
    except ProgrammingError as error:
        place, user = engine.url.render_as_string(), engine.url.username
        raise NotTrimmed(
            f"{place} does not let {user} trim: {error.orig}. Nothing was deleted. "
            f"Its owner can run GRANT {TRIMMER} TO {user}."
        ) from error


class TrimStore:
    """The database access of the trimmer. Every method and every portion is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def require_role(self) -> None:
        require_trimmer(self._engine)

    def newest(self) -> Cut | None:
        with self._engine.connect() as db:
            return read_cut(db)

    def standby_lag_s(self) -> float | None:
        """`postgres.standby_lag_s` of this database."""
        return standby_lag_s(self._engine)

    def record(self, made: Cut) -> None:
        with self._engine.begin() as db:
            inputs = msgspec.msgpack.encode(made.inputs)
            db.execute(insert(cut).values(**{**made._asdict(), "inputs": inputs}))

    def drop(self, aside: Sequence[int] = ()) -> Iterator[int]:
        """Deletes the rows before the newest cut; yields the number of rows of each portion.

        From quarantine it deletes only the positions in `aside`: a rebuild may have quarantined
        messages since the archive was written.
        """
        at = self.newest()
        if at is None:
            return
        yield self._drop_set_aside(aside, at)
        for rule in _trim_rules(at):
            while deleted := self._drop_some(rule):
                yield deleted

    def _drop_set_aside(self, aside: Sequence[int], at: Cut) -> int:
        deleted = 0
        for first in range(0, len(aside), PORTION):
            some = aside[first : first + PORTION]
            archived = quarantine.c.position.in_(some) & (quarantine.c.position <= at.p_to)
            with self._engine.begin() as db:
                deleted += db.execute(delete(quarantine).where(archived)).rowcount
        return deleted

    def _drop_some(self, rule: _TrimRule) -> int:
        with self._engine.begin() as db:
            due = select(rule.key).where(rule.condition).order_by(rule.key).limit(PORTION)
            last = db.scalar(select(func.max(due.subquery().c[0])))
            if last is None:
                return 0
            return db.execute(delete(rule.table).where(rule.condition, rule.key <= last)).rowcount

    def release_pages(self) -> Iterator[int]:
        """Returns empty pages of SQLite to the file system; yields the bytes of each portion.

        A file that was created before schema 0005 keeps and reuses them; PostgreSQL has its own
        vacuum.
        """
        if self._engine.dialect.name != "sqlite":
            return
        while freed := self._release_some_pages():
            yield freed
        with self._engine.connect() as db:
            run_in_sqlite(db, "PRAGMA wal_checkpoint(PASSIVE)")

    def _release_some_pages(self) -> int:
        with self._engine.begin() as db:
            before = _pragma(db, "page_count")
            run_in_sqlite(db, f"PRAGMA incremental_vacuum({PAGES})")
            return (before - _pragma(db, "page_count")) * _pragma(db, "page_size")


def _pragma(db: Connection, name: str) -> int:
    value: int = run_in_sqlite(db, f"PRAGMA {name}")[0][0]
    return value
