import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from nats.errors import Error as NatsError
from nats.errors import FlushTimeoutError

from bus_kit import CLUSTER, connected, power, producer
from joulie_bus.broker.checksum import server_binary
from joulie_bus.broker.embedded import Embedded, address_within
from joulie_bus.errors import BrokerRefused, Unreachable
from joulie_bus.jetstream import connection as connecting
from joulie_bus.jetstream import in_flight
from joulie_bus.jetstream.connection import Address, Connection, _State
from joulie_bus.jetstream.nats_internals import JoulieClient
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.jetstream.reader import ConsumerReader
from joulie_bus.runtime.ports import free_port
from joulie_bus.streams.records import Message
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream

pytestmark = pytest.mark.anyio


@pytest.fixture
def frozen(broker: Embedded) -> Generator[Callable[[], None], None, None]:
    """Stops the broker where it stands: its sockets stay open, and fill up."""
    pid = broker.pid
    assert pid is not None
    yield lambda: os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGCONT)


async def complaint(address: Address, patience_s: float = 0.7) -> str:
    with pytest.raises(Unreachable) as caught:
        await Connection.open(address, "test", patience_s)
    return str(caught.value)


def with_password(address: Address, password: str) -> Address:
    return Address(url=address.url, user=address.user, password=password)


async def test_the_error_of_an_unreachable_broker_names_its_url() -> None:
    url = f"nats://127.0.0.1:{free_port()}"
    told = await complaint(Address(url=url, user="joe", password="hunter2"))

    assert told.startswith(f"No NATS server answers at {url}: ")
    assert "Connection refused" in told
    assert "hunter2" not in told


async def test_a_busy_broker_of_the_data_directory_is_not_blamed_on_a_setting(
    broker: Embedded, frozen: Callable[[], None]
) -> None:
    frozen()
    told = await complaint(address_within(broker._directory, broker.url, Role.AUDITOR))

    assert told.endswith(
        f"It runs in {broker._directory}: it, or this machine, may be busy. Try again."
    )
    assert "NATS_URL" not in told


@pytest.mark.parametrize("password", ["hunter2", ""])
async def test_a_wrong_password_is_named_in_the_error(broker: Embedded, password: str) -> None:
    told = await complaint(with_password(broker.address_of(Role.ADMIN), password))

    assert told == (
        f"No NATS server answers at {broker.url}: nats: 'Authorization Violation'. "
        "Nothing was sent. Is NATS_URL right, and is the server up?"
    )


@pytest.mark.parametrize(
    "url",
    ["nats://joe:hunter2@127.0.0.1:1", "nats://joe:hun@ter2@127.0.0.1:1", "nats://hunter2@:1"],
)
async def test_a_password_in_the_url_is_never_shown(url: str) -> None:
    address = Address(url=url)
    shown = repr(address) + await complaint(address, 0.1)

    assert "ter2" not in shown
    assert ":1" in shown


@pytest.mark.parametrize(
    "address",
    [
        Address(url=""),
        Address(url="nats://127.0.0.1:http"),
        Address(url="nats://:4222"),
        Address(url="nats://127.0.0.1:4222", ca_file="/nowhere/ca.pem"),
    ],
    ids=["nothing", "no port", "no host", "no CA file"],
)
async def test_a_malformed_address_fails_at_once(address: Address) -> None:
    assert f"answers at {address.url}: " in await complaint(address, 60)


async def test_errors_after_a_refused_password_do_not_hide_it() -> None:
    state = _State()
    await state.on_error(NatsError("nats: 'Authorization Violation'"))
    await state.on_error(ConnectionResetError("connection reset by peer"))

    assert state.last == "nats: 'Authorization Violation'"


def test_an_address_is_shown_without_its_password() -> None:
    address = Address(url="nats://127.0.0.1:4222", user="joe", password="hunter2")

    assert repr(address) == "Address(url='nats://127.0.0.1:4222', user='joe')"


async def test_a_refusal_comes_back_with_its_code(connection: Connection) -> None:
    with pytest.raises(BrokerRefused, match="stream not found") as caught:
        await connection.api("STREAM.INFO.NOPE")

    assert (caught.value.subject, caught.value.code) == ("$JS.API.STREAM.INFO.NOPE", 10059)


async def test_a_request_without_a_responder_is_refused_at_once(connection: Connection) -> None:
    with pytest.raises(BrokerRefused) as caught:
        await connection.request("nobody.listens", b"")

    assert caught.value.code == 503


async def test_a_request_to_a_stopped_broker_fails_with_its_url(
    broker: Embedded, connection: Connection
) -> None:
    broker.kill()
    await broker.wait()

    with pytest.raises(Unreachable, match=broker.url) as caught:
        await connection.request("anything", b"", timeout_s=0.2)
    assert "NATS_URL" not in str(caught.value), "it was right before"


async def test_a_broker_that_falls_over_a_question_is_asked_again(
    broker: Embedded, connection: Connection
) -> None:
    os.kill(broker.pid, signal.SIGSTOP)
    asking = asyncio.create_task(connection.api("STREAM.NAMES"))
    await asyncio.sleep(0.05)  # the question is on its way
    broker.kill()
    await broker.wait()
    await broker.start()

    async with asyncio.timeout(60):
        assert (await asking)["total"] > 0


def stall() -> None:
    """The loop, as a commit to a disk that takes its time."""
    time.sleep(0.3)


async def test_a_request_whose_reply_came_too_late_is_repeated(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection.request, "__defaults__", (None, 0.1))
    asking = asyncio.create_task(connection.api("STREAM.NAMES"))
    for _ in range(3):  # the question is on its way
        await asyncio.sleep(0)
    stall()

    assert (await asking)["total"] > 0


async def test_a_live_message_reaches_every_subscriber(
    broker: Embedded, connection: Connection
) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    async with (
        connected(broker, "speaker") as speaker,
        connection.listening(CLUSTER.beat, heard.put_nowait),
    ):
        await connection.flush()
        await speaker.send(CLUSTER.beat, b"tick")

        assert await asyncio.wait_for(heard.get(), 60) == b"tick"


async def test_a_connection_outlives_its_broker(broker: Embedded, connection: Connection) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    async with connection.listening("news", heard.put_nowait), asyncio.timeout(60):
        broker.kill()
        await broker.wait()
        await broker.start()
        while not connection.is_connected or heard.empty():
            await connection.send("news", b"back")
            await asyncio.sleep(0.02)

        assert await heard.get() == b"back"


async def test_everything_ends_at_once_though_the_broker_is_gone(
    broker: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "CLOSE_TIMEOUT_S", 60.0)
    async with (
        asyncio.timeout(60),
        connected(broker) as connection,
        Publisher.on(connection) as publisher,
        ConsumerReader.on(connection, Stream.TEL, 0),
    ):
        await publisher.publish([producer().stamp(power("n1", 100))])
        broker.kill()
        await broker.wait()

    assert not connection.is_connected


async def test_a_frozen_broker_does_not_delay_a_close(
    broker: Embedded, frozen: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "CLOSE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(in_flight, "ACK_DEADLINE_S", 0.1)
    large = [Message("joulie.tel.test.n1", f"id-{n}", bytes(100_000)) for n in range(200)]
    async with (
        asyncio.timeout(60),
        connected(broker) as connection,
        Publisher.on(connection) as publisher,
    ):
        frozen()
        sending = asyncio.create_task(publisher.publish(large))
        await asyncio.wait([sending], timeout=0.7)  # until the socket is full, and some are late
        sending.cancel()

    assert sending.cancelled()


async def test_a_client_that_cannot_be_closed_delays_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def endless(_: JoulieClient) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(connecting, "CLOSE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(JoulieClient, "close", endless)
    async with asyncio.timeout(60):
        assert "127.0.0.1:1" in await complaint(Address(url="nats://127.0.0.1:1"))


async def ignored(_: object) -> None:
    pass


@pytest.mark.parametrize("is_late", [False, True], ids=["answered", "its time is over"])
async def test_a_subscription_ends_if_a_flush_swallows_its_cancellation(
    is_late: bool, broker: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `wait_for` of Python 3.11 does if the answer of the broker arrives at the same time, and
    nats-py if its socket is full.
    """
    async with connected(broker) as connection:

        async def listen() -> None:
            async with connection.subscribed("joulie.view.test.delta", ignored):
                await asyncio.Event().wait()

        async def flush_and_swallow(timeout: int) -> None:
            await flush(timeout)
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            if is_late:
                raise FlushTimeoutError

        flush = connection._client.flush
        monkeypatch.setattr(connection._client, "flush", flush_and_swallow)
        listening = asyncio.create_task(listen())
        await asyncio.wait([listening], timeout=60)

        assert listening.cancelled()


@pytest.mark.filterwarnings("ignore:parameter 'timeout':DeprecationWarning")  # of nats-py's call
async def test_a_broker_can_be_reached_by_a_websocket(tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "nats.conf"
    config.write_text(
        f'listen: "127.0.0.1:{free_port()}"\n'
        f'websocket {{ listen: "127.0.0.1:{port}", no_tls: true }}\n'
    )
    process = await asyncio.create_subprocess_exec(
        server_binary(), "-c", str(config), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        connection = await Connection.open(Address(url=f"ws://127.0.0.1:{port}"), "websocket")
        assert connection.is_connected
        await connection.close()
    finally:
        process.terminate()
        await process.wait()
