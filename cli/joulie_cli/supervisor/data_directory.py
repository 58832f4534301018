"""The data directory: what lies where, who holds it, and what is running in it.

joulie.db          positions, states, decisions (SQLite), unless DATABASE_URL names another place
nats/              the streams
credentials/       a password per role at the broker, made once, readable by the owner alone
head.key           signs the heads of the decision log; head.pub checks them
spool/             decisions on their way
run.json           what is running: addresses, processes
lock               held while something runs
logs/              one file per part
"""

import fcntl
import os
from pathlib import Path

import msgspec

from joulie_bus.errors import DataDirectoryError
from joulie_bus.runtime.secret_files import write_private
from joulie_projections.store.database import Place, sqlite_file

DEFAULT = Path("joulie-data")


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """What `run.json` says. No secrets in it."""

    pid: int
    nats_url: str
    endpoints: dict[str, str]
    parts: dict[str, int] = {}
    restarts: dict[str, int] = {}
    metrics: dict[str, str] = {}  # where each part tells its own
    since: int = 0


class DataDirectory:
    def __init__(self, path: Path, database_url: str = "", broker: str = "") -> None:
        self.path = path.resolve()
        self.database: Place = database_url or self.path / "joulie.db"
        self.broker = broker  # the program; empty for the wheel's
        self.key = self.path / "head.key"
        self.public_key = self.path / "head.pub"
        self.spool = self.path / "spool"
        self.logs = self.path / "logs"
        self._run = self.path / "run.json"
        self._lock = self.path / "lock"

    def create(self) -> None:
        try:
            for folder in (self.path, self.spool, self.logs):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DataDirectoryError(
                f"The data directory {self.path} cannot be made: {error.strerror}. "
                f"Choose another one with --data."
            ) from error

    def require(self) -> None:
        file = sqlite_file(self.database)
        if file is not None and not file.exists():
            raise DataDirectoryError(
                f"There is no Joulie data in {self.path}. "
                f"`joulie demo --data {self.path}` or `joulie up --data {self.path}` makes some."
            )

    def hold(self) -> "Hold":
        """The directory for ourselves until the hold is let go; raises if somebody has it."""
        return Hold(self._lock, self.path)

    def running(self) -> Running | None:
        """What runs here now; None if nothing does, whatever an old run.json says."""
        try:
            found = msgspec.json.decode(self._run.read_bytes(), type=Running)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return found if is_alive(found.pid) and self._is_held() else None

    def announce(self, running: Running) -> None:
        write_private(self._run, msgspec.json.encode(running).decode())

    def withdraw(self) -> None:
        self._run.unlink(missing_ok=True)

    def _is_held(self) -> bool:
        try:
            self.hold().release()
        except DataDirectoryError:
            return True
        return False


class Hold:
    """A lock that the kernel lets go of when its process ends, however it ends."""

    def __init__(self, lock: Path, directory: Path) -> None:
        self._file = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
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
