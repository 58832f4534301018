"""The past as the database holds it, read only, for audits and for people."""

import contextlib
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Select, func, select
from sqlalchemy.exc import SQLAlchemyError

from joulie_bus.errors import Unreadable
from joulie_bus.events import FilterDecided, PrioritizeDecided, SettingsDeclared
from joulie_projections import database, rows
from joulie_projections.commit import Checkpoint
from joulie_projections.heads import Head
from joulie_projections.manifest import Manifest, Range
from joulie_projections.store import read_checkpoint, read_rows
from joulie_projections.tables import batch, decision, head, quarantine

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


class Wanted(NamedTuple):
    """Which entries somebody asks for; what is left empty does not matter."""

    pod_uid: str = ""
    pod: str = ""  # namespace/name
    kinds: Sequence[str] = ()
    since: int | None = None  # of `decided_at`, both included
    until: int | None = None


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

    @classmethod
    @contextlib.contextmanager
    def readable(cls, path: Path) -> Generator["History", None, None]:
        """The same for those who go on without: what the database refuses has a name."""
        try:
            with cls.of(path) as history:
                yield history
        except SQLAlchemyError as error:
            raise Unreadable(str(path), str(error).splitlines()[0]) from error

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

    def tip(self) -> int:
        """The newest entry's position; 0 while there is none."""
        return self._number(func.max(decision.c.pos))

    def entry(self, pos: int) -> Logged | None:
        return next(self._logged(select(decision).where(decision.c.pos == pos)), None)

    def entries_after(self, pos: int, limit: int) -> list[Logged]:
        following = select(decision).where(decision.c.pos > pos)
        return list(self._logged(following.order_by(decision.c.pos).limit(limit)))

    def entries_before(self, pos: int, wanted: Wanted) -> Iterator[Logged]:
        """Newest first; who has enough of them stops reading."""
        earlier = select(decision).where(decision.c.pos < pos, *_conditions(wanted))
        return self._logged(earlier.order_by(decision.c.pos.desc()))

    def newest_answers(self, count: int) -> Sequence[Logged]:
        answers = select(decision).where(decision.c.kind.in_(ANSWERS))
        return list(self._logged(answers.order_by(decision.c.pos.desc()).limit(count)))

    def heads(self) -> list[Head]:
        return [Head(**row._mapping) for row in self._db.execute(select(head).order_by(head.c.pos))]

    def heads_before(self, pos: int, limit: int) -> list[Head]:
        """Newest first."""
        earlier = select(head).where(head.c.pos < pos).order_by(head.c.pos.desc()).limit(limit)
        return [Head(**row._mapping) for row in self._db.execute(earlier)]

    def manifests(self, after: int = 0) -> Iterator[Manifest]:
        """From the one that goes on behind `after`."""
        found = select(batch).where(batch.c.p_to > after).order_by(batch.c.p_to)
        return map(_manifest, self._paged(found))

    def manifests_back(self) -> Iterator[Manifest]:
        """Newest first."""
        return map(_manifest, self._paged(select(batch).order_by(batch.c.p_to.desc())))

    def manifest_by(self, time_ns: int) -> Manifest | None:
        """The last one that was committed by then."""
        # In the order of the key: commits are as monotone as the clock of their writer.
        known = select(batch).where(batch.c.committed_at <= time_ns)
        row = self._db.execute(known.order_by(batch.c.p_to.desc()).limit(1)).first()
        return _manifest(row) if row else None

    def checkpoint(self) -> Checkpoint | None:
        return read_checkpoint(self._db)

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


def _conditions(wanted: Wanted) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.pod_uid:
        found.append(decision.c.pod_uid == wanted.pod_uid)
    if wanted.pod:
        found.append(decision.c.pod == wanted.pod)
    if wanted.kinds:
        found.append(decision.c.kind.in_(wanted.kinds))
    if wanted.since is not None:
        found.append(decision.c.decided_at >= wanted.since)
    if wanted.until is not None:
        found.append(decision.c.decided_at <= wanted.until)
    return found


def _manifest(row: Row[Any]) -> Manifest:
    ranges = msgspec.msgpack.decode(row.ranges, type=tuple[Range, ...])
    return Manifest(**row._mapping)._replace(ranges=ranges)
