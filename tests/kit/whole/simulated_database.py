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

from joulie_projections.fold.commit import Inputs
from joulie_projections.store import database

_INPUTS = msgspec.msgpack.Decoder(Inputs)
_NEWEST = "SELECT incarnation, position, inputs FROM checkpoint WHERE name = 'projector'"


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
    def __init__(self, file: Path, clock: Callable[[], int]) -> None:
        self.file = file
        self.clock = clock
        self.is_up = True
        self.promotions = 0
        self._look = sqlite3.connect(file)  # of the simulator, which every fault spares

    @property
    def timeline(self) -> str:
        """A promotion begins another one, which is all that a database shows of it."""
        return f"{self.promotions + 1:08X}"

    @contextlib.contextmanager
    def writing(self, link: DatabaseLink) -> Generator[Engine, None, None]:
        yield from self._engine(database.writer(self.file), link)

    @contextlib.contextmanager
    def reading(self, link: DatabaseLink) -> Generator[Engine, None, None]:
        yield from self._engine(database.reader(self.file), link)

    def _engine(self, engine: Engine, link: DatabaseLink) -> Generator[Engine, None, None]:
        @event.listens_for(engine, "begin", insert=True)
        def begin(_: Connection) -> None:
            require_alive()
            if not (self.is_up and link.works):
                raise OperationalError("BEGIN", {}, ConnectionError("the connection is lost"))

        committed = engine.dialect.do_commit

        def commit(connection: sqlite3.Connection) -> None:
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
        copy = sqlite3.connect(":memory:")
        with contextlib.closing(sqlite3.connect(self.file)) as source:
            source.backup(copy)
        return Standby(copy, self)


class Standby:
    """What a standby has that receives no more changes."""

    def __init__(self, copy: sqlite3.Connection, server: DatabaseServer) -> None:
        self._copy = copy
        self._server = server

    def promote(self) -> None:
        """From now on the server has this content; what was committed since is lost."""
        with contextlib.closing(sqlite3.connect(self._server.file)) as target:
            self._copy.backup(target)
        self._server.promotions += 1
        self._copy.close()
