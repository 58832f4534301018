"""An index of an archive in one SQLite file: everything that `History` queries except bodies.

It is derived from the parts of the archive, and may be deleted. Bodies of entries are read from the
parts.
"""

import contextlib
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Select, text

from joulie_bus.core.formats import in_force
from joulie_projections.chain.head import Head
from joulie_projections.fold.commit import Cut, Poison
from joulie_projections.fold.manifest import CODE_VERSION
from joulie_projections.history.history import NEWEST, PAGE, History, StoredEntry

VERSION = int(in_force("index"))
FIELD_COLUMNS = ("pos", "event_id", "kind", "pod_uid", "pod", "view_position", "decided_at")
_SCHEMA = (
    "CREATE TABLE part (seal TEXT PRIMARY KEY, kind TEXT, began_at BIGINT, versions TEXT)",
    "CREATE TABLE decision (pos INTEGER PRIMARY KEY, event_id TEXT, kind TEXT, pod_uid TEXT, "
    "pod TEXT, view_position BIGINT, decided_at BIGINT, body BLOB DEFAULT x'', "
    "prev BLOB DEFAULT x'', hash BLOB DEFAULT x'')",
    "CREATE INDEX decision_by_pod_uid ON decision (pod_uid)",
    "CREATE INDEX decision_by_pod ON decision (pod)",
    "CREATE INDEX decision_by_view ON decision (view_position)",
    "CREATE INDEX decision_by_time ON decision (decided_at, pos)",
    "CREATE TABLE head (pos BIGINT PRIMARY KEY, note BLOB)",
    f"CREATE TABLE quarantine ({', '.join(Poison._fields)}, PRIMARY KEY (position))",
    "CREATE TABLE snapshot (position BIGINT PRIMARY KEY, fold_version TEXT)",
    f"PRAGMA user_version = {VERSION}",
)
_TABLES = ("part", "decision", "head", "quarantine", "snapshot")


class IndexedPart(NamedTuple):
    """A part of an archive, with the fields that queries use."""

    seal: str
    kind: str
    began_at: int
    versions: str  # of the code that folded it, separated by spaces


class ArchiveIndex:
    """Writes the index, in one transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    @classmethod
    @contextlib.contextmanager
    def filling(cls, file: Path) -> Generator["ArchiveIndex", None, None]:
        with contextlib.closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = OFF")  # the index can be rebuilt
            db.execute("BEGIN IMMEDIATE")
            if db.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                for table in _TABLES:
                    db.execute(f"DROP TABLE IF EXISTS {table}")
                for statement in _SCHEMA:
                    db.execute(statement)
            yield cls(db)
            db.execute("COMMIT")

    def seals(self) -> set[str]:
        return {seal for (seal,) in self._db.execute("SELECT seal FROM part")}

    def clear(self) -> None:
        for table in _TABLES:
            self._db.execute(f"DELETE FROM {table}")

    def add_facts(
        self, part: IndexedPart, aside: Sequence[Poison], snapshots: Sequence[tuple[int, str]]
    ) -> None:
        """Adds a part with facts; `snapshots` are pairs of position and fold version."""
        self._add(part)
        marks = ", ".join("?" * len(Poison._fields))
        self._db.executemany(f"INSERT INTO quarantine VALUES ({marks})", aside)
        self._db.executemany("INSERT INTO snapshot VALUES (?, ?)", snapshots)

    def add_log(
        self, part: IndexedPart, rows: Sequence[tuple[object, ...]], heads: Sequence[Head]
    ) -> None:
        """Adds a part of the decision log; `rows` have the columns of `FIELD_COLUMNS`."""
        self._add(part)
        into = f"INSERT INTO decision ({', '.join(FIELD_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?)"
        self._db.executemany(into, rows)
        signed = [(head.pos, head.note.encode()) for head in heads]
        self._db.executemany("INSERT INTO head VALUES (?, ?)", signed)

    def _add(self, part: IndexedPart) -> None:
        self._db.execute("INSERT INTO part VALUES (?, ?, ?, ?)", part)


class IndexedHistory(History):
    """The history before a cut: temporary views hide the rows after it."""

    def __init__(self, index: History, cut: Cut) -> None:
        super().__init__(index.connection)
        for table, where in (
            ("decision", f"pos < {cut.pos}"),
            ("head", f"pos < {cut.pos}"),
            ("quarantine", f"position <= {cut.p_to}"),
            ("snapshot", f"position < {cut.p_to}"),
        ):
            view = f"CREATE TEMP VIEW {table} AS SELECT * FROM main.{table} WHERE {where}"
            self._db.execute(text(view))

    def cut(self) -> None:
        """None: the archive lacks no entries."""
        return

    @cached_property
    def recorded_end(self) -> int:
        """The views end at the cut."""
        return NEWEST

    def entry_at(self, pos: int) -> StoredEntry:
        """Reads the entry from the part that contains it."""
        raise NotImplementedError

    def parts_begun_by(self, time_ns: int) -> frozenset[str]:
        """Seals of the parts with facts that begin at or before the time."""
        begun = text("SELECT seal FROM part WHERE kind = 'facts' AND began_at <= :time")
        return frozenset(self._db.scalars(begun, {"time": time_ns}))

    def fold_versions(self) -> list[str]:
        found = self._db.scalars(text("SELECT DISTINCT versions FROM part WHERE kind = 'facts'"))
        return sorted({version for versions in found for version in versions.split()})

    def snapshot_positions(self) -> list[int]:
        return list(self._db.scalars(text("SELECT position FROM snapshot ORDER BY position")))

    def starts(self) -> list[int]:
        usable = text("SELECT position FROM snapshot WHERE fold_version = :v ORDER BY position")
        return list(self._db.scalars(usable, {"v": CODE_VERSION}))

    def _logged(self, query: Select[Any], page: int = PAGE) -> Iterator[StoredEntry]:
        return (self.entry_at(row.pos) for row in self._paged(query, page))
