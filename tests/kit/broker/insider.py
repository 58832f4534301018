"""An insider: has credentials of components, and does at random what these allow.

Everything but the process of the projector: the file of the log, the file of the ledger, the rights
of the archiver, and users of the broker. All draw from a seeded source, so that a run can be
repeated, and pause between attempts. What was planted is counted, to be found afterwards.
"""

import asyncio
import contextlib
import itertools
import random
import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from broker_attacks import round_of_shots
from bus_kit import decided, one_of_each
from hostile import EXTREMES
from joulie_bus.broker.embedded import address_within
from joulie_bus.errors import BusError
from joulie_bus.events import AnyEvent, codec
from joulie_bus.events.codec import Envelope
from joulie_bus.jetstream.connection import Connection
from joulie_bus.streams.cut_requests import CutRequest, encode
from joulie_bus.streams.roles import GRANTS, Role
from joulie_bus.streams.subjects import Subjects, agent_name
from joulie_projections.chain.entry import chain_hash, fields_of_message, header_of
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.decision_log.position import NAME

PAUSE_S = 0.05
LOCKED_S = 0.2


class NothingThere(Exception):
    """There is no row yet that an attempt copies."""


REFUSED = (sqlite3.Error, DBAPIError, NothingThere)


class Insider:
    """Makes attempts until it is cancelled. Those in the database run in a thread."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.attempts: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()

    async def run(self) -> None:
        while True:
            await self.act()
            await asyncio.sleep(PAUSE_S)

    async def act(self) -> None:
        kind = self.random.choice(self.kinds())
        name = kind.__name__.strip("_")
        self.attempts[name] += 1
        with contextlib.suppress(*REFUSED):
            await to_its_end(kind)
            self.taken[name] += 1

    def kinds(self) -> Sequence[Callable[[], None]]:
        raise NotImplementedError


async def to_its_end(call: Callable[[], None]) -> None:
    """In a thread, which is waited for also if the caller is cancelled: it has a connection."""
    running = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise


class FileWriter(Insider):
    """Opens the file of the log with SQLite itself: the guards are triggers alone."""

    def __init__(self, file: Path, seed: int) -> None:
        super().__init__(seed)
        self._file = file
        self.entries: set[int] = set()  # positions at which decisions were planted
        self.heads: set[bytes] = set()  # by their ids

    def kinds(self) -> Sequence[Callable[[], None]]:
        entries = (self._next_id, self._next_id, self._new_id, self._known_entry, self._noise)
        others = (self._head, self._end_forward, self._end_of_another, self._change, self._remove)
        return (*entries, *others, self._evidence, self._cut)

    @contextlib.contextmanager
    def _writing(self) -> Generator[sqlite3.Connection, None, None]:
        with contextlib.closing(sqlite3.connect(self._file, timeout=LOCKED_S)) as db, db:
            db.execute("BEGIN IMMEDIATE")
            yield db

    def _next_id(self) -> None:
        """With the id of a message to come of a replica: its producer counts."""
        with self._writing() as db:
            kinds = "kind LIKE 'decision.%' ORDER BY pos DESC LIMIT 1"
            [event_id] = one(db, f"SELECT event_id FROM decision WHERE {kinds}")
            producer, boot, number = event_id.rsplit(":", 2)
            self._plant(db, f"{producer}:{boot}:{int(number) + self.random.randrange(1, 30)}")

    def _new_id(self) -> None:
        with self._writing() as db:
            self._plant(db, f"insider:{secrets.token_hex(4)}:1")

    def _plant(self, db: sqlite3.Connection, event_id: str) -> None:
        event = decided(f"ghost-{self.random.randrange(10**6)}")
        message = codec.seal(_enveloped(event, event_id))
        self._insert(db, header_of(fields_of_message(message, "here")) + message)

    def _known_entry(self) -> None:
        """A copy of an entry behind the newest: the id is taken."""
        with self._writing() as db:
            [body] = one(db, "SELECT body FROM decision ORDER BY random() LIMIT 1")
            self._insert(db, body)

    def _noise(self) -> None:
        with self._writing() as db:
            self._insert(db, self.random.randbytes(self.random.choice((1, 30, 3000))))

    def _insert(self, db: sqlite3.Connection, body: bytes) -> None:
        pos, prev = self._newest(db)
        row = (pos + 1, body, prev, chain_hash(prev, body))
        db.execute("INSERT INTO decision (pos, body, prev, hash) VALUES (?, ?, ?, ?)", row)
        self.entries.add(pos + 1)

    def _newest(self, db: sqlite3.Connection) -> tuple[int, bytes]:
        pos, digest = one(db, "SELECT pos, hash FROM decision ORDER BY pos DESC LIMIT 1")
        return pos, digest

    def _head(self) -> None:
        with self._writing() as db:
            newest = "SELECT pos, p_to, hash, note, quota FROM head ORDER BY pos DESC LIMIT 1"
            pos, p_to, digest, note, quota = one(db, newest)
            forged = self.random.choice((note + b"\n", self.random.randbytes(400)))
            row = (secrets.token_bytes(32), pos + self.random.randrange(-3, 9), p_to, digest)
            db.execute("INSERT INTO head VALUES (?, ?, ?, ?, ?, ?)", (*row, forged, quota))
            self.heads.add(row[0])

    def _end_forward(self) -> None:
        """Readers and a projector that starts would leave out what comes next."""
        with self._writing() as db:
            further = self.random.choice((1, 50, 10**6))
            db.execute(
                "UPDATE checkpoint SET position = position + ? WHERE name = ?", (further, NAME)
            )

    def _end_of_another(self) -> None:
        with self._writing() as db:
            column = self.random.choice(("inputs", "head"))
            value = self.random.randbytes(self.random.choice((0, 1, 32)))
            db.execute(f"UPDATE checkpoint SET {column} = ? WHERE name = ?", (value, NAME))

    def _change(self) -> None:
        with self._writing() as db:
            db.execute("UPDATE decision SET body = x'00' WHERE pos % 7 = 1")

    def _remove(self) -> None:
        with self._writing() as db:
            db.execute(f"DELETE FROM {self.random.choice(('decision', 'head', 'batch'))}")

    def _evidence(self) -> None:
        """A row of `foreign_row` that no writer of the log put there."""
        with self._writing() as db:
            row = ("decision", self.random.randrange(10**9), time.time_ns(), "never", b"x", b"y")
            db.execute("INSERT INTO foreign_row VALUES (?, ?, ?, ?, ?, ?)", row)

    def _cut(self) -> None:
        with self._writing() as db:
            pos, digest = one(db, "SELECT pos, hash FROM decision ORDER BY pos LIMIT 1")
            columns = [row[1] for row in db.execute("PRAGMA table_info(cut)")]
            given = {"number": 1, "pos": pos, "hash": digest, "p_to": 1}
            values = [given.get(column, b"") for column in columns]
            db.execute(f"INSERT INTO cut VALUES ({', '.join('?' * len(columns))})", values)


def one(db: sqlite3.Connection, query: str) -> tuple[Any, ...]:
    found: tuple[Any, ...] | None = db.execute(query).fetchone()
    if found is None:
        raise NothingThere
    return found


class DatabaseUser(Insider):
    """Statements with the rights of one role, on either database."""

    def __init__(self, engine: Engine, seed: int) -> None:
        super().__init__(seed)
        self._engine = engine

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            self._engine.dispose()

    def execute(self, statement: str) -> None:
        with self._engine.begin() as db:
            db.exec_driver_sql(statement)


class Trimmer(DatabaseUser):
    """The archiver tries what only the projector may; with SQLite it has the file."""

    def kinds(self) -> Sequence[Callable[[], None]]:
        return (self._delete, self._delete, self._insert)

    def _delete(self) -> None:
        table = self.random.choice(("decision", "batch", "head", "quarantine"))
        self.execute(f"DELETE FROM {table}")

    def _insert(self) -> None:
        table = self.random.choice(("decision", "checkpoint", "node_twin", "cut", "energy"))
        self.execute(f"INSERT INTO {table} DEFAULT VALUES")


class LedgerUser(DatabaseUser):
    """The ledger's rights: its own tables, and no other."""

    def kinds(self) -> Sequence[Callable[[], None]]:
        return (self._row, self._state, self._forget, self._other_table)

    def _row(self) -> None:
        start, kind = self.random.randrange(2**40), self.random.choice(("node", "pod", "x"))
        values = f"'hour', {start}, '{kind}', {self._bytes()}"
        self.execute(f"INSERT INTO energy (grain, start_ms, kind, body) VALUES ({values})")

    def _state(self) -> None:
        column = self.random.choice(("body", "digest"))
        self.execute(f"UPDATE energy_state SET {column} = {self._bytes()}")

    def _forget(self) -> None:
        self.execute(f"DELETE FROM {self.random.choice(('energy', 'energy_state'))}")

    def _other_table(self) -> None:
        table = self.random.choice(("decision", "checkpoint", "batch", "node_twin", "head"))
        self.execute(f"DELETE FROM {table}")

    def _bytes(self) -> str:
        made = self.random.randbytes(self.random.choice((0, 8, 300))).hex()
        is_sqlite = self._engine.dialect.name == "sqlite"
        return f"x'{made}'" if is_sqlite else f"'\\x{made}'::bytea"


class BrokerUser(Insider):
    """A user of the broker: facts of its own subjects, true ones and ones with extremes, and every
    call of the API of JetStream that it may not make."""

    def __init__(
        self, data: DataDirectory, subjects: Subjects, role: Role, nodes: Sequence[str], seed: int
    ) -> None:
        super().__init__(seed)
        self._data, self._subjects, self._role = data, subjects, role
        self._nodes, self._boot, self._number = nodes, secrets.token_hex(4), itertools.count(1)
        self._shots = itertools.cycle(round_of_shots(GRANTS[role], 0))

    async def run(self) -> None:
        running = self._data.running()
        assert running is not None
        address = address_within(self._data.path, running.nats_url, self._role)
        connection = await Connection.open(address, f"insider-{self._role}")
        try:
            while True:
                for send in (self._fact, self._shot, self._request):
                    with contextlib.suppress(BusError, OSError):
                        await send(connection)
                await asyncio.sleep(PAUSE_S)
        finally:
            await connection.close()

    async def _shot(self, connection: Connection) -> None:
        shot = next(self._shots)
        self.attempts["call"] += 1
        await connection.send(shot.subject, shot.data, shot.reply, shot.headers)

    async def _fact(self, connection: Connection) -> None:
        event, name = self._event()
        self.attempts[event.TYPE] += 1
        await connection.send(self._subjects.of(event, name), self._sealed(event, name))

    async def _request(self, connection: Connection) -> None:
        """For a cut, which the archivist alone may ask for."""
        self.attempts["request"] += 1
        asked = self.random.choice((self.random.randbytes(30), b"{}", encode(self._cut())))
        await connection.send(self._subjects.cuts, asked, connection.new_inbox())

    def _cut(self) -> CutRequest:
        digest, at = self.random.randbytes(32), self.random.choice((1, 7, 100, 2**62))
        return CutRequest(
            pos=at, hash=digest, p_to=at, manifest_head=digest, log_seal="x", facts_seal="x", by="x"
        )

    def _event(self) -> tuple[AnyEvent, str]:
        node = self.random.choice(self._nodes)
        event = self.random.choice(one_of_each(node, f"ghost-{self.random.randrange(1000)}"))
        name = agent_name(node) if self._role is Role.AGENT else str(self._role)
        return event, name

    def _sealed(self, event: AnyEvent, name: str) -> bytes:
        data = codec.encode(event)
        tree = msgspec.msgpack.decode(data)
        if tree and self.random.random() < 0.5:
            tree[self.random.choice(sorted(tree))] = self.random.choice(EXTREMES)
            with contextlib.suppress(OverflowError):
                data = msgspec.msgpack.encode(tree)
        event_id = f"{name}:{self._boot}:{next(self._number)}"
        return codec.seal(_enveloped(event, event_id, data))


def _enveloped(event: AnyEvent, event_id: str, data: bytes | None = None) -> Envelope:
    return Envelope(
        id=event_id,
        type=event.TYPE,
        v=event.VERSION,
        key=event.key,
        ts=time.time_ns(),
        data=msgspec.Raw(codec.encode(event) if data is None else data),
    )


@contextlib.asynccontextmanager
async def acting(insiders: Sequence[Insider]) -> AsyncGenerator[None, None]:
    """All of them at once, until the end of the block."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(each.run()) for each in insiders]
        yield
        for task in running:
            task.cancel()
