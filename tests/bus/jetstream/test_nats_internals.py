"""Each private name of nats-py that the bus uses: what breaks if a version lacks it."""

import ast
import asyncio
import contextlib
import os
import signal
import tomllib
from collections.abc import AsyncGenerator, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from nats.aio.client import Client, Srv
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from bus_kit import until
from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import ClientIncompatible, Unreachable
from joulie_bus.jetstream import nats_internals
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.jetstream.nats_internals import (
    PRIVATE_NAMES,
    TESTED_VERSIONS,
    JoulieClient,
    PrivateName,
    missing,
    require_compatible,
)

ROOT = Path(__file__).parents[3]
NOWHERE = Address(url="nats://127.0.0.1:1")
OWNERS = {"Client": Client, "Subscription": Subscription}


def remove(private: PrivateName, monkeypatch: pytest.MonkeyPatch) -> None:
    """From nats-py itself, as a new version of it might."""
    owner = OWNERS[private.owner]
    if private.parameters is not None:
        monkeypatch.delattr(owner, private.name)
        return
    init = owner.__init__  # type: ignore[misc]

    def init_without(self: Any, *args: Any) -> None:
        init(self, *args)
        delattr(self, private.name)

    monkeypatch.setattr(owner, "__init__", init_without)


def test_the_installed_version_has_every_private_name() -> None:
    require_compatible()


@pytest.mark.anyio
@pytest.mark.parametrize("private", PRIVATE_NAMES, ids=lambda private: private.name)
async def test_no_connection_opens_with_a_version_that_lacks_a_private_name(
    private: PrivateName, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(private, monkeypatch)
    with pytest.raises(ClientIncompatible) as caught:
        await Connection.open(NOWHERE, "test", 0.1)

    assert caught.value.lacking == (f"{private.owner}.{private.name}",)
    assert f"nats-py {version('nats-py')} has no {private.owner}.{private.name}" in str(
        caught.value
    )


def test_a_private_method_with_other_parameters_counts_as_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def _process_msg(self: Client, message: Msg) -> None: ...

    monkeypatch.setattr(Client, "_process_msg", _process_msg)

    assert missing({"Client": Client(), "Subscription": Subscription(None)}) == [
        "Client._process_msg"
    ]


def test_the_package_allows_the_tested_versions_only() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (required,) = (
        requirement
        for requirement in map(Requirement, project["dependencies"])
        if requirement.name == "nats-py"
    )

    assert required.specifier == SpecifierSet(TESTED_VERSIONS)
    assert version("nats-py") in SpecifierSet(TESTED_VERSIONS)


def private_names_of_nats() -> set[str]:
    transport = TcpTransport()  # type: ignore[no-untyped-call]
    known = {name for each in (Client(), Subscription(None), transport) for name in dir(each)}
    return {name for name in known if name.startswith("_") and not name.startswith("__")}


def names_in(tree: ast.Module) -> Iterator[str]:
    """Attributes, defined methods, and texts, which may be the argument of `getattr`."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner != "self":
                yield name
            case ast.Attribute(value=ast.Attribute() | ast.Call(), attr=name):
                yield name
            case ast.Constant(value=str(name)) | ast.AsyncFunctionDef(name=name):
                yield name
            case _:
                pass


def test_no_other_module_uses_a_private_name_of_nats_py() -> None:
    private, here = private_names_of_nats(), {nats_internals.__file__, __file__}
    trees = {
        path: ast.parse(path.read_text())
        for folder in ("bus", "tests/bus", "benchmarks", "docs")
        for path in (ROOT / folder).rglob("*.py")
        if str(path) not in here
    }

    assert [
        (path.name, name)
        for path, tree in trees.items()
        for name in names_in(tree)
        if name in private
    ] == []


@pytest.mark.anyio
async def test_a_receiver_gets_messages_without_the_queue_of_the_subscription(
    connection: Connection,
) -> None:
    """`_process_msg` and `_id`."""
    received: asyncio.Queue[tuple[bytes, ...]] = asyncio.Queue()
    queued: list[Msg] = []

    async def callback(message: Msg) -> None:
        queued.append(message)

    async with connection.subscribed("news", callback, lambda *each: received.put_nowait(each)):
        await connection.send("news", b"with headers", "reply", {"Name": "value"})
        await connection.send("news", b"plain")
        async with asyncio.timeout(60):
            first, second = await received.get(), await received.get()

    assert (first, second) == ((b"news", b"reply", b"with headers"), (b"news", b"", b"plain"))
    assert queued == []


@pytest.mark.anyio
async def test_a_pong_after_its_flush_was_given_up_ends_no_connection(
    broker: Embedded, connection: Connection
) -> None:
    """`_process_pong` and `_pongs`."""
    received: asyncio.Queue[bytes] = asyncio.Queue()
    async with connection.listening("news", received.put_nowait):
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            for _ in range(2):  # under load several are given up
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await connection.flush()
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        await connection.flush()
        await connection.send("news", b"after it")
        async with asyncio.timeout(60):
            assert await received.get() == b"after it"

    assert connection.lives == 1


class Failing:
    """A server that completes the first handshake, drops that connection and answers no other."""

    INFO = b'INFO {"version":"2.12.0","max_payload":1048576,"headers":true}\r\n'

    def __init__(self) -> None:
        self.url = ""
        self.accepted = 0
        self.closed = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator["Failing", None]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.accepted == 1:
            writer.write(self.INFO)
            await reader.readuntil(b"PING\r\n")
            writer.write(b"PONG\r\n")
            await writer.drain()
        else:
            writer.write(b"nothing that nats-py expects\r\n")
            await reader.read()  # until the client closes its side
        writer.close()
        self.closed += 1


@pytest.mark.anyio
async def test_reconnections_that_fail_leave_no_socket_open() -> None:
    """`_connect_to_server` and `_transport`."""
    async with Failing().serving() as server:
        connection = await Connection.open(Address(url=server.url), "test", 5)
        await until(lambda: server.accepted >= 4 and server.closed >= server.accepted - 1)
        await connection.close()
        await until(lambda: server.closed == server.accepted)


class Busy(Failing):
    """A server that has other clients to serve first."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        await asyncio.sleep(2.5)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            writer.write(self.INFO)
            await reader.readuntil(b"PING\r\n")
            writer.write(b"PONG\r\n")
            await reader.read()
        writer.close()


@pytest.mark.anyio
async def test_a_busy_server_is_waited_for_longer_with_each_attempt(tmp_path: Path) -> None:
    """`_process_connect_init`. An agent, of which there are thousands, waits at once."""
    (tmp_path / "token").write_text("of.an.agent")
    async with Busy().serving() as server:
        component = await Connection.open(Address(url=server.url), "test")
        assert server.accepted == 2
        reviewed = Address(url=server.url, token_file=str(tmp_path / "token"))
        agent = await Connection.open(reviewed, "test")
        assert server.accepted == 3
        await asyncio.gather(component.close(), agent.close())


class Asking(Failing):
    """A broker that pings a client before it authenticates it, and then accepts it or not."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self._answer = answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        writer.write(self.INFO)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"PING\r\n")
            writer.write(b"PING\r\n")
            await reader.readuntil(b"PONG\r\n")
            writer.write(self._answer)
            await (reader.read() if self._answer else writer.drain())
        writer.close()


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [b"-ERR 'Authorization Violation'\r\n", b""])
async def test_a_client_is_not_connected_before_the_broker_knows_it(answer: bytes) -> None:
    """`_transport`: its lines."""
    async with Asking(answer).serving() as server:
        with pytest.raises(Unreachable):
            await Connection.open(Address(url=server.url), "test", 1)
    async with Asking(b"PONG\r\n").serving() as server:
        connection = await Connection.open(Address(url=server.url), "test", 5)
        await connection.close()


def test_a_client_that_lost_its_server_tries_the_others_first() -> None:
    firsts = set[str]()
    for _ in range(50):
        client = JoulieClient(lambda _: None)
        client._server_pool = [Srv(urlparse(f"nats://{name}:4222")) for name in "abc"]
        client._current_server = client._server_pool[1]
        client.order_servers()
        assert client._server_pool[-1] is client._current_server
        firsts.add(str(client._server_pool[0].uri.hostname))

    assert firsts == {"a", "c"}
