"""The database server: one SQLite file, connections that fail, and standbys to fail over to."""

import contextlib
import random
import sqlite3
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import OperationalError
from virtual_time import require_alive

import joulie_migrations
from joulie_projections.fold.commit import Inputs
from joulie_projections.store import database

_INPUTS = msgspec.msgpack.Decoder(Inputs)
_NEWEST = "SELECT incarnation, position, inputs FROM checkpoint WHERE name = 'projector'"

_BLANK: dict[str, bytes] = {}


def migrated(file: Path) -> Path:
    """A database at today's schema; the migrations run once for all runs of this process."""
    if not _BLANK:
        engine = database.migrator(file)
        joulie_migrations.upgrade(engine)
        engine.dispose()
        _BLANK[""] = file.read_bytes()
    file.write_bytes(_BLANK[""])
    return file


class Committed(NamedTuple):
    incarnation: str
    position: int
    inputs: Inputs


class DatabaseLink:
    """Between a component and the database server."""

    def __init__(self, rng: random.Random) -> None:
        self.works = True
        self.lost_share = 0.0  # of the replies to a COMMIT
        self._rng = rng

    def loses_reply(self) -> bool:
        return self._rng.random() < self.lost_share

    def heal(self) -> None:
        self.works, self.lost_share = True, 0.0


class DatabaseServer:
    def __init__(
        self, file: Path, clock: Callable[[], int], lease_clock: Callable[[], int] | None = None
    ) -> None:
        self.file = file
        self.clock = clock
        self.lease_clock = lease_clock or clock
        self.stops = 0  # faults that it is down for
        self.is_full = False  # its disk
        self.promotions = 0
        self.is_restored = False  # from an archive: folded again, by our version
        self._look = sqlite3.connect(file)  # of the simulator, which every fault spares
        with_ledger(file)

    @property
    def is_up(self) -> bool:
        return not self.stops

    @property
    def timeline(self) -> str:
        """A promotion begins another one, which is all that a database shows of it."""
        return f"{self.promotions + 1:08X}"

    @contextlib.contextmanager
    def writing(self, link: DatabaseLink) -> Generator[Engine, None, None]:
        yield from self._engine(database.writer(self.file), link)

    @contextlib.contextmanager
    def ledger(self, link: DatabaseLink) -> Generator[Engine, None, None]:
        yield from self._engine(database.ledger(self.file), link)

    @contextlib.contextmanager
    def reading(self, link: DatabaseLink) -> Generator[Engine, None, None]:
        yield from self._engine(database.reader(self.file), link)

    def _engine(self, engine: Engine, link: DatabaseLink) -> Generator[Engine, None, None]:
        @event.listens_for(engine, "begin", insert=True)
        def begin(connection: Connection) -> None:
            require_alive()
            if connection.info.get("promotions") != self.promotions:  # a promotion ends them all
                connection.info.clear()
                connection.info["promotions"] = self.promotions
            if not (self.is_up and link.works):
                raise OperationalError("BEGIN", {}, ConnectionError("the connection is lost"))

        committed = engine.dialect.do_commit

        def commit(connection: sqlite3.Connection) -> None:
            if self.is_full:
                raise sqlite3.OperationalError("database or disk is full")
            committed(connection)  # type: ignore[arg-type]
            if link.loses_reply():
                raise sqlite3.OperationalError("the connection was lost before the reply")

        engine.dialect.do_commit = commit  # type: ignore[method-assign, assignment]
        try:
            yield engine
        finally:
            engine.dispose()

    def committed(self) -> Committed | None:
        """What the newest commit of a projector left."""
        found = self._look.execute(_NEWEST).fetchone()
        return None if found is None else Committed(found[0], found[1], _INPUTS.decode(found[2]))

    def close(self) -> None:
        self._look.close()

    def standby(self) -> "Standby":
        """A copy of the present content."""
        return Standby(self)

    def continue_with(self, other: Path) -> None:
        """From now on the server has the content of another database."""
        for source, target in zip(files_of(other), files_of(self.file), strict=True):
            with contextlib.closing(_copy_of(source)) as copy:
                _replace(target, copy)


def with_ledger(file: Path) -> Path:
    """With an empty ledger, if it has none."""
    engine = database.ledger(file)
    engine.connect().close()
    engine.dispose()
    return file


def files_of(file: Path) -> tuple[Path, Path]:
    """PostgreSQL has the log and the ledger in one database, SQLite in two files."""
    return file, database.ledger_file(file)


def _copy_of(file: Path) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:")
    with contextlib.closing(sqlite3.connect(file)) as source:
        source.backup(copy)
    return copy


def _replace(file: Path, content: sqlite3.Connection) -> None:
    with contextlib.closing(sqlite3.connect(file)) as target:
        content.backup(target)


class Standby:
    """What a standby has that receives no more changes."""

    def __init__(self, server: DatabaseServer) -> None:
        self._copies = {file: _copy_of(file) for file in files_of(server.file)}
        self._server = server

    def promote(self) -> None:
        """From now on the server has this content; what was committed since is lost."""
        for file, copy in self._copies.items():
            _replace(file, copy)
            copy.close()
        self._server.promotions += 1
