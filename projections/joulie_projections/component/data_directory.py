"""The data directory: its files, its lock, and the processes that run in it.

joulie.db          positions, states, decisions (SQLite), unless DATABASE_URL names another place
joulie-ledger.db   the ledger of energy, likewise
nats/              the streams
credentials/       a password per role at the broker, made once, readable by the owner alone
head.key           signs the heads of the decision log, unless JOULIE_KEYS names another directory
head.pub           checks them
spool/             decisions that are not shipped yet
run.json           the running processes and their addresses
prometheus.json    the metrics of each process, as targets for Prometheus (file_sd)
simulated.json     what the pods of a simulated cluster got, once it has ended
lock               locked while something runs
logs/              one file per part
"""

import fcntl
import os
from pathlib import Path

import msgspec

from joulie_bus.errors import DataDirectoryError
from joulie_bus.runtime.own_files import require_own
from joulie_bus.runtime.secret_files import write_private

SQLITE = b"SQLite format 3\0"
DEFAULT = Path("joulie-data")


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `run.json`, without secrets."""

    pid: int
    nats_url: str
    endpoints: dict[str, str]
    parts: dict[str, int] = {}
    restarts: dict[str, int] = {}
    metrics: dict[str, str] = {}  # the address of each part's metrics
    since: int = 0
    started: dict[str, int] = {}  # when the process of each part started, in nanoseconds


class DataDirectory:
    def __init__(
        self, path: Path, database_url: str = "", broker: str = "", keys: str = ""
    ) -> None:
        self.path = path.resolve()
        if self.path.exists() and not self.path.is_dir():
            raise DataDirectoryError(
                f"{self.path} is a file, and no data directory. Nothing was read or written. "
                "Choose another one with --data."
            )
        self.database: Path | str = database_url or self.path / "joulie.db"
        self.owns_database = not database_url
        self.broker = broker  # path of nats-server; empty for the one in the wheel
        self.key = (Path(keys).resolve() if keys else self.path) / "head.key"
        self.public_key = self.path / "head.pub"
        self.spool = self.path / "spool"
        self.logs = self.path / "logs"
        self._run = self.path / "run.json"
        self.prometheus = self.path / "prometheus.json"
        self.simulated = self.path / "simulated.json"
        self._lock = self.path / "lock"

    def create(self) -> None:
        for folder in (self.path, self.key.parent, self.spool, self.logs):
            self._make(folder)
            require_own(folder)

    def _make(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DataDirectoryError(
                f"{folder} cannot be created: {error.strerror}. Nothing was written. Choose "
                f"another directory with --data, or JOULIE_KEYS for the keys."
            ) from error

    def require(self) -> None:
        if not self.has_database:
            raise DataDirectoryError(
                f"There is no Joulie data in {self.path}. Nothing was read. "
                f"`joulie demo --data {self.path}` or `joulie up --data {self.path}` creates it."
            )
        if isinstance(self.database, Path):
            with self.database.open("rb") as file:
                begins = file.read(len(SQLITE))
            if begins not in (b"", SQLITE):  # SQLite begins an empty file
                raise DataDirectoryError(
                    f"{self.database} is not a database of SQLite. Nothing was read or written. "
                    "Choose another directory with --data, or restore the file (docs/backup.md)."
                )

    @property
    def has_database(self) -> bool:
        """False if the file of the database does not exist; a server may or may not respond."""
        if isinstance(self.database, str):
            from joulie_projections.store.database import sqlite_file  # loads SQLAlchemy

            file = sqlite_file(self.database)
            return file is None or file.exists()
        return self.database.exists()

    def lock(self) -> "DirectoryLock":
        """Lock the directory; raises DataDirectoryError if another process holds the lock."""
        return DirectoryLock(self._lock, self.path)

    def running(self) -> Running | None:
        """The processes that run here; None if nothing does, even if an old run.json exists."""
        try:
            found = msgspec.json.decode(self._run.read_bytes(), type=Running)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return found if is_alive(found.pid) and self._is_locked() else None

    def write_run_file(self, running: Running) -> None:
        write_private(self._run, msgspec.json.encode(running).decode())
        targets = [
            {"targets": [at], "labels": {"component": name}} for name, at in running.metrics.items()
        ]
        write_private(self.prometheus, msgspec.json.encode(targets).decode())

    def remove_run_file(self) -> None:
        self._run.unlink(missing_ok=True)

    def _is_locked(self) -> bool:
        try:
            self.lock().release()
        except DataDirectoryError:
            return True
        return False


class DirectoryLock:
    """A file lock, which the kernel releases when the process ends for any reason."""

    def __init__(self, lock: Path, directory: Path) -> None:
        self._file = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise DataDirectoryError(
                f"Something already runs in {directory}. `joulie status --data {directory}` shows "
                f"what; stop it, or choose another directory with --data."
            ) from error

    def release(self) -> None:
        os.close(self._file)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
