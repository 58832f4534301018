"""The HTTP server as kube-scheduler needs it: kept connections, one write per reply, a bounded
drain.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncGenerator

import pytest

from bus_kit import until
from extender_kit import JSON, PATIENCE_S, QUICK, Received, exchange, opened, post
from go_http import Client
from joulie_bus.errors import PortTaken
from joulie_bus.http.connection import LARGE, PIPELINED
from joulie_bus.http.exchange import Body, Limits, Reply, Request
from joulie_bus.http.server import SWEEP_S, HttpServer, listening
from joulie_bus.runtime.settings import HostPort

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """The extender runs on either loop."""
    return "asyncio", {"use_uvloop": request.param}


SHORT = QUICK._replace(head_s=0.1, body_s=0.1, keep_alive_s=0.1)


def echo(request: Request) -> Reply:
    return Reply(200, request.method.encode() + b" " + request.path.encode() + b" " + request.body)


def asked(body: bytes = b"", path: str = "/x", more: str = "") -> bytes:
    length = f"Content-Length: {len(body)}\r\n"
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{JSON}{length}{more}\r\n".encode() + body


class Line:
    """A connection that stays, written to byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def hear(self) -> Received:
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
            return Received(int(head.split()[1]), head, await self.reader.readexactly(length))

    async def end(self) -> bytes:
        """What comes until the server closes."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read()

    async def say(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()


@contextlib.asynccontextmanager
async def line(port: int) -> AsyncGenerator[Line, None]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Line(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_a_reply_is_what_the_handler_says() -> None:
    async with opened(lambda _: Reply(200, b"[]", b"A: b\r\n")) as http_server:
        reply = await exchange(http_server.port, asked(more="Connection: close\r\n"))

    assert reply.head + reply.body == (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nA: b\r\n"
        b"Connection: close\r\n\r\n[]"
    )


async def test_head_and_body_arrive_in_one_piece() -> None:
    async with (
        opened(lambda _: Reply(200, b"x" * 1000)) as http_server,
        line(http_server.port) as client,
    ):
        await client.say(asked())
        await client.reader.readexactly(1)
        waiting = client.reader._buffer  # type: ignore[attr-defined]

        assert waiting.endswith(b"x" * 1000)


@pytest.mark.parametrize("cut", range(0, 60, 7))
async def test_a_request_may_come_in_any_pieces(cut: int) -> None:
    whole = asked(b"body", "/some/path?and=query", "Connection: close\r\n")
    async with opened(echo) as http_server, line(http_server.port) as client:
        await client.say(whole[:cut], whole[cut : cut + 1], whole[cut + 1 :])
        reply = await client.hear()

    assert reply.body == b"POST /some/path body"


ROOMY = QUICK._replace(body=4 * LARGE)


@pytest.mark.parametrize("cut", [1, 40, 70, 80, 100, LARGE, 2 * LARGE, 3 * LARGE])
async def test_large_bodies_and_small_ones_follow_each_other(cut: int) -> None:
    bodies = [b"a" * (LARGE + 1), b"small", b"b" * (2 * LARGE), b"", b"c" * LARGE]
    sent = b"".join(map(asked, bodies))
    async with opened(echo, ROOMY) as http_server, line(http_server.port) as client:
        said = asyncio.ensure_future(client.say(sent[:cut], sent[cut:]))
        heard = [(await client.hear()).body for _ in bodies]
        await said

    assert heard == [b"POST /x " + body for body in bodies]


async def test_a_client_of_http_1_0_is_answered_and_closed() -> None:
    async with opened(echo) as http_server:
        reply = await exchange(http_server.port, b"GET /x HTTP/1.0\r\nHost: localhost\r\n\r\n")

    assert reply.body == b"GET /x "


async def test_requests_written_ahead_are_answered_in_their_order() -> None:
    count = 5 * PIPELINED
    async with opened(echo) as http_server, line(http_server.port) as client:
        await client.say(b"".join(asked(b"%d" % number) for number in range(count)))
        bodies = [(await client.hear()).body for _ in range(count)]

    assert bodies == [b"POST /x %d" % number for number in range(count)]


async def test_slow_replies_keep_their_order_and_delay_no_other_connection() -> None:
    first = asyncio.Event()

    async def wait(request: Request) -> Reply:
        if request.body == b"slow":
            await first.wait()
        return echo(request)

    async with (
        opened(wait) as http_server,
        line(http_server.port) as slow,
        line(http_server.port) as quick,
    ):
        await slow.say(asked(b"slow"), asked(b"next"))
        await quick.say(asked(b"quick"))
        assert (await quick.hear()).body == b"POST /x quick"
        first.set()

        assert [(await slow.hear()).body for _ in range(2)] == [b"POST /x slow", b"POST /x next"]


async def test_many_that_wait_are_read_no_further_than_they_may() -> None:
    go, seen = asyncio.Event(), list[Body]()

    async def wait(request: Request) -> Reply:
        seen.append(request.body)
        await go.wait()
        return echo(request)

    count = 4 * PIPELINED
    async with opened(wait) as http_server, line(http_server.port) as client:
        await client.say(b"".join(asked(b"%d" % number) for number in range(count)))
        await until(lambda: len(seen) == 1)
        go.set()
        bodies = [(await client.hear()).body for _ in range(count)]

    assert bodies == [b"POST /x %d" % number for number in range(count)]


async def test_a_failing_handler_is_a_500_without_details() -> None:
    def fail(_: Request) -> Reply:
        raise RuntimeError("a secret")

    async with opened(fail) as http_server:
        reply = await post(http_server.port, "/x", b"")

    assert reply.status == 500
    assert b"secret" not in reply.body


async def test_an_answer_that_fails_later_is_a_500_too() -> None:
    async def fail(_: Request) -> Reply:
        raise RuntimeError("a secret")

    async with opened(fail) as http_server:
        reply = await post(http_server.port, "/x", b"")

    assert reply.status == 500


# --- what is refused --------------------------------------------------------------------------

TOO_LARGE = QUICK.body + 1


async def test_a_body_that_says_it_is_too_large_is_refused_unread() -> None:
    head = f"POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Length: {TOO_LARGE}\r\n\r\n"
    async with opened(echo) as http_server:
        reply = await exchange(http_server.port, head.encode())

    assert reply.status == 413
    assert b"The body is larger than" in reply.body


async def test_a_refused_client_that_goes_on_writing_can_read_the_reason() -> None:
    head = f"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: {TOO_LARGE}\r\n\r\n".encode()
    async with opened(echo) as http_server, line(http_server.port) as client:
        await client.say(head, *[b"x" * 1000] * 10)
        reply = await client.hear()

    assert reply.status == 413


async def test_a_body_as_large_as_the_limit_is_read() -> None:
    async with opened(echo) as http_server:
        reply = await post(http_server.port, "/x", b"x" * QUICK.body)

    assert len(reply.body) == len("POST /x ") + QUICK.body


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"POST /x HTTP/1.1\r\nContent-Length: two\r\n\r\n", 400),
        (b"POST /x HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST /x HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET /x HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 10_000, 431),
        (b"GET /" + b"x" * 100_000, 431),
        (b"GET /x HTTP/1.1\r\nA: " + b"x" * 100_000, 431),
    ],
    ids=["no http", "tls", "no number", "two lengths", "negative", "many", "a path", "a field"],
)
async def test_what_is_no_request_is_refused(sent: bytes, status: int) -> None:
    async with opened(echo) as http_server:
        reply = await exchange(http_server.port, sent)

    assert reply.status == status
    assert b"Connection: close\r\n" in reply.head


async def test_an_offer_to_speak_something_else_is_answered_as_http_1_1() -> None:
    upgrade = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    async with opened(echo) as http_server:
        reply = await exchange(http_server.port, asked(more=upgrade))

    assert (reply.status, reply.body) == (200, b"POST /x ")


# --- slow clients ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "what"),
    [
        (b"POST /x HT", b"head"),
        (b"POST /x HTTP/1.1\r\nContent-Le", b"head"),
        (asked(b"abc")[:-1], b"body"),
        (asked(bytes(2 * LARGE))[:-1], b"body"),
        (asked(bytes(2 * LARGE))[:100], b"body"),
    ],
    ids=["a start", "a field", "a body", "a large body", "little of a large body"],
)
async def test_a_slow_request_gets_408_and_is_closed(sent: bytes, what: bytes) -> None:
    async with opened(echo, SHORT._replace(body=2 * LARGE)) as http_server:
        reply = await exchange(http_server.port, sent)

    assert reply.status == 408
    assert what in reply.body


async def test_bytes_that_drip_do_not_buy_time() -> None:
    dripping = itertools.chain(asked(b"", "/")[:6], itertools.repeat(ord("x")))
    async with opened(echo, SHORT) as http_server, line(http_server.port) as client:
        heard = asyncio.ensure_future(client.hear())
        while not heard.done():
            await client.say(bytes([next(dripping)]))
            await asyncio.wait([heard], timeout=0.02)

    assert (heard.result().status, b"head" in heard.result().body) == (408, True)


async def test_a_client_that_does_not_take_its_reply_is_cut() -> None:
    large = Reply(200, b"x" * 30_000_000)
    async with opened(lambda _: large, SHORT) as http_server, line(http_server.port) as client:
        await client.say(asked())
        await until(lambda: not http_server.connections)


async def test_an_idle_connection_is_closed_after_its_time_and_not_before() -> None:
    limits = QUICK._replace(keep_alive_s=3 * SWEEP_S)
    async with opened(echo, limits) as http_server, line(http_server.port) as client:
        asked_at = time.monotonic()
        await client.say(asked())
        await client.hear()
        assert await client.end() == b""

    uvloop_tick_s = 0.001  # its clock counts whole milliseconds
    assert time.monotonic() - asked_at >= limits.keep_alive_s - uvloop_tick_s


def test_idle_connections_are_kept_longer_than_kube_scheduler_keeps_them() -> None:
    assert Limits().keep_alive_s > 90


# --- leaving ----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def leaving(http_server: HttpServer) -> AsyncGenerator[asyncio.Task[None], None]:
    task = asyncio.create_task(http_server.drain())
    await until(lambda: http_server.is_draining)
    yield task
    async with asyncio.timeout(PATIENCE_S):
        await task


async def test_the_last_reply_has_connection_close() -> None:
    limits = QUICK._replace(drain_s=PATIENCE_S)
    async with opened(echo, limits) as http_server, line(http_server.port) as client:
        await client.say(asked(b"1"))
        assert b"Connection: close" not in (await client.hear()).head
        async with leaving(http_server):
            await client.say(asked(b"2"))
            reply = await client.hear()
            assert b"Connection: close\r\n" in reply.head
            assert await client.end() == b""

    assert reply.body == b"POST /x 2"


async def test_while_it_leaves_newcomers_are_served_and_a_client_loses_no_call() -> None:
    limits = QUICK._replace(drain_s=PATIENCE_S)
    async with opened(echo, limits) as http_server, contextlib.AsyncExitStack() as others:
        held = await others.enter_async_context(line(http_server.port))  # without any it is gone
        await held.say(asked(b"0"))
        await held.hear()
        client = Client("127.0.0.1", http_server.port)
        await client.post("x", b"1", PATIENCE_S)
        async with leaving(http_server):
            replies = [await client.post("x", b"%d" % n, PATIENCE_S) for n in range(2, 5)]
            await client.close()
            await others.aclose()

    assert replies == [b"POST /x 2", b"POST /x 3", b"POST /x 4"]
    assert client.dialled == 3


async def test_an_answer_under_way_is_finished() -> None:
    go = asyncio.Event()

    async def wait(request: Request) -> Reply:
        await go.wait()
        return echo(request)

    limits = QUICK._replace(drain_s=PATIENCE_S)
    async with opened(wait, limits) as http_server, line(http_server.port) as client:
        await client.say(asked(b"1"))
        await until(lambda: len(http_server.connections) == 1)
        async with leaving(http_server):
            go.set()
            assert (await client.hear()).body == b"POST /x 1"


async def test_it_waits_for_an_idle_connection_no_longer_than_configured() -> None:
    async with opened(echo, QUICK) as http_server, line(http_server.port) as client:
        await client.say(asked(b"1"))
        await client.hear()
        await http_server.drain()

        assert await client.end() == b""


async def test_the_port_is_free_again_at_the_end_of_the_block() -> None:
    async with opened(echo) as http_server:
        at = HostPort("127.0.0.1", http_server.port)

    async with listening(echo, at, QUICK) as again:
        assert (await post(again.port, "/x", b"1")).status == 200


async def test_a_taken_port_is_named() -> None:
    async with opened(echo) as http_server:
        at = HostPort("127.0.0.1", http_server.port)
        with pytest.raises(PortTaken, match=f"Nothing can listen on 127.0.0.1:{http_server.port}"):
            async with listening(echo, at):
                pass
