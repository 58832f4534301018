"""The past as the database holds it, read only, for audits and for people."""

import contextlib
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, Row, Select, func, select

from joulie_bus.events import FilterDecided, PrioritizeDecided, SettingsDeclared
from joulie_projections import database, rows
from joulie_projections.commit import Checkpoint
from joulie_projections.heads import Head
from joulie_projections.manifest import Manifest, Range
from joulie_projections.store import read_checkpoint, read_rows
from joulie_projections.tables import batch, decision, head, quarantine
from joulie_projections.world import World

PAGE = 1000  # rows held in memory while a long table is read
ANSWERS = (FilterDecided.TYPE, PrioritizeDecided.TYPE)


class Logged(NamedTuple):
    """One row of the decision log, as it lies there."""

    pos: int
    event_id: str
    kind: str
    pod_uid: str
    pod: str
    view_position: int
    decided_at: int
    body: bytes
    prev: bytes
    hash: bytes


class Counts(NamedTuple):
    entries: int
    answers: int
    pods: int
    signed_to: int
    quarantined: int
    committed_at: int | None


class History:
    """One moment of the database: everything that is read through it belongs together."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    @classmethod
    @contextlib.contextmanager
    def of(cls, path: Path) -> Generator["History", None, None]:
        engine = database.reader(path)
        try:
            with engine.connect() as db, db.begin():
                yield cls(db)
        finally:
            engine.dispose()

    def entries(self) -> Iterator[Logged]:
        return self._logged(select(decision).order_by(decision.c.pos))

    def answers_by_view(self) -> Iterator[Logged]:
        """Filter and prioritize answers, in the order of the positions that they looked at."""
        answers = select(decision).where(decision.c.kind.in_(ANSWERS))
        return self._logged(answers.order_by(decision.c.view_position, decision.c.pos))

    def filters(self) -> Iterator[Logged]:
        return self._logged(select(decision).where(decision.c.kind == FilterDecided.TYPE))

    def declarations(self) -> Iterator[Logged]:
        return self._logged(select(decision).where(decision.c.kind == SettingsDeclared.TYPE))

    def newest_answers(self, count: int) -> Sequence[Logged]:
        answers = select(decision).where(decision.c.kind.in_(ANSWERS))
        return list(self._logged(answers.order_by(decision.c.pos.desc()).limit(count)))

    def heads(self) -> list[Head]:
        return [Head(**row._mapping) for row in self._db.execute(select(head).order_by(head.c.pos))]

    def manifests(self) -> Iterator[Manifest]:
        for row in self._paged(select(batch).order_by(batch.c.p_to)):
            found = Manifest(**row._mapping)
            ranges = msgspec.msgpack.decode(row.ranges, type=tuple[Range, ...])
            yield found._replace(ranges=ranges)

    def checkpoint(self) -> Checkpoint | None:
        return read_checkpoint(self._db)

    def world(self) -> World:
        """As readers see it."""
        return rows.world_of(read_rows(self._db, rows.VIEWED))

    def digests(self) -> rows.Digests:
        """Of the rows as they lie there now, hashed again."""
        return rows.digests_of(read_rows(self._db, tuple(rows.STATES)))

    def counts(self) -> Counts:
        is_answer = decision.c.kind.in_(ANSWERS)
        return Counts(
            entries=self._number(func.max(decision.c.pos)),
            answers=self._number(select(func.count()).where(is_answer).scalar_subquery()),
            pods=self._number(
                select(func.count(decision.c.pod_uid.distinct())).where(is_answer).scalar_subquery()
            ),
            signed_to=self._number(func.max(head.c.pos)),
            quarantined=self._number(func.count(quarantine.c.position)),
            committed_at=self._db.scalar(select(func.max(batch.c.committed_at))),
        )

    def _number(self, what: Any) -> int:
        return self._db.scalar(select(what)) or 0

    def _logged(self, query: Select[Any]) -> Iterator[Logged]:
        return (Logged._make(row) for row in self._paged(query))

    def _paged(self, query: Select[Any]) -> Iterator[Row[Any]]:
        return iter(self._db.execute(query.execution_options(yield_per=PAGE)))
