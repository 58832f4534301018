"""Attacks on the extender's port over real sockets: each attempt is refused."""

import asyncio
import contextlib
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from authority import Authority
from bus_kit import NOON, until
from extender_kit import (
    JSON,
    PATIENCE_S,
    QUICK,
    exchange,
    opened,
    performing,
    saving,
    served,
    snapshot_of,
)
from joulie_bus.core.http_head import HeadRule
from joulie_bus.errors import SettingsError
from joulie_bus.http.certificates import Certificates
from joulie_bus.http.exchange import Reply, Request
from joulie_bus.http.server import listening
from joulie_bus.runtime import metrics
from joulie_bus.runtime.settings import HostPort, Source
from joulie_extender.catalogue.weights import Weights
from joulie_extender.debug.pages import ScoringPages
from joulie_extender.decide.context import DecisionContext
from joulie_extender.http.routes import PROBES
from joulie_extender.settings import ServerSettings
from joulie_projections.state.completeness import NEVER_MS

pytestmark = pytest.mark.anyio
MIB = 1024 * 1024
SNAPSHOT = snapshot_of(performing("n0", 0), saving("n1", 1))
ARGS = {"Pod": {"metadata": {"name": "p", "uid": "u1"}}, "Nodes": None, "NodeNames": ["n0", "n1"]}
BODY = json.dumps(ARGS).encode()
HOST = "Host: localhost\r\n"


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


def echo(request: Request) -> Reply:
    return Reply(200, bytes(request.body))


def posted(*lines: str, body: bytes = BODY, path: str = "/filter") -> bytes:
    head = f"POST {path} HTTP/1.1\r\n{''.join(lines)}Connection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def counted(reason: str) -> float:
    return float(metrics.REQUESTS_REFUSED.labels(reason=reason)._value.get())


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncGenerator[asyncio.StreamWriter, None]:
    """A client that writes and reads nothing."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield writer
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def spoken(port: int, *parts: bytes) -> AsyncGenerator[asyncio.StreamReader, None]:
    """A client that has sent this, and stays."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


# --- many requests on one connection ----------------------------------------------------------


async def test_pipelined_requests_of_one_client_take_turns_with_others() -> None:
    asked: list[str] = []

    def handle(request: Request) -> Reply:
        asked.append(request.path)
        return Reply(200, b"")

    many = f"GET /many HTTP/1.1\r\n{HOST}\r\n".encode() * 500
    one = f"GET /one HTTP/1.1\r\n{HOST}\r\n".encode()
    async with (
        opened(handle, QUICK._replace(head=2**20)) as http_server,
        connected(http_server.port) as greedy,
        connected(http_server.port) as other,
    ):
        greedy.write(many)
        other.write(one)
        await until(lambda: len(asked) == 501)

    assert asked.index("/one") < 50


async def test_a_page_that_is_asked_for_again_and_again_is_made_once_a_second() -> None:
    made, now = list[int](), [0.0]
    pages = ScoringPages(Weights(), lambda: now[0])

    def context() -> DecisionContext:
        made.append(1)
        return DecisionContext(SNAPSHOT.twin_columns, len(made), 3, NOON)

    first, again = (json.loads(pages.encoded(context)) for _ in range(2))
    now[0] = 0.5
    older = json.loads(pages.encoded(context))
    now[0] = 1.0
    fresh = json.loads(pages.encoded(context))

    assert first == again
    assert older == first | {"viewAgeMs": 503}
    assert (fresh["position"], fresh["viewAgeMs"], len(made)) == (2, 3, 2)


async def test_the_page_of_a_replica_without_a_view_has_no_age() -> None:
    now = [0.0]
    pages = ScoringPages(Weights(), lambda: now[0])

    def context() -> DecisionContext:
        return DecisionContext(SNAPSHOT.twin_columns, 0, NEVER_MS, NOON)

    first = json.loads(pages.encoded(context))
    now[0] = 0.5

    assert first["viewAgeMs"] is None
    assert json.loads(pages.encoded(context))["viewAgeMs"] is None


# --- from a page in a browser -----------------------------------------------------------------

CROSS_SITE = {
    "a simple post": ((HOST, "Content-Type: text/plain\r\n"), 415, "content_type"),
    "a form": ((HOST, "Content-Type: application/x-www-form-urlencoded\r\n"), 415, "content_type"),
    "no type": ((HOST,), 415, "content_type"),
    "its origin": ((HOST, JSON, "Origin: https://evil.example\r\n"), 403, "origin"),
    "a sandbox": ((HOST, JSON, "Origin: null\r\n"), 403, "origin"),
    "its name": (("Host: evil.example:9876\r\n", JSON), 421, "host"),
    "two names": ((HOST, "Host: evil.example\r\n", JSON), 400, "host"),
    "no name": ((JSON,), 400, "host"),
}


@pytest.mark.parametrize("attempt", CROSS_SITE)
async def test_a_post_that_a_page_can_send_is_refused_counted_and_never_logged(
    attempt: str,
) -> None:
    lines, status, reason = CROSS_SITE[attempt]
    before = counted(reason)
    async with served(lambda: SNAPSHOT) as extender:
        reply = await exchange(extender.port, posted(*lines))
        recorded = list(extender.recorded)

    assert (reply.status, recorded, counted(reason) - before) == (status, [], 1)
    assert list(json.loads(reply.body)) == ["error"]


@pytest.mark.parametrize("path", ["/debug/scoring", "/explain/u1", "/openapi.json"])
@pytest.mark.parametrize("line", ["Host: evil.example", "Host: localhost\r\nOrigin: https://e.x"])
async def test_a_page_reads_nothing_under_a_name_of_its_own(path: str, line: str) -> None:
    async with served(lambda: SNAPSHOT) as extender:
        reply = await exchange(extender.port, f"GET {path} HTTP/1.1\r\n{line}\r\n\r\n".encode())

    assert reply.status in (403, 421)
    assert b"n0" not in reply.body


async def test_a_target_with_a_name_in_it_reads_nothing_either() -> None:
    target = b"GET http://localhost/debug/scoring HTTP/1.1\r\nHost: localhost\r\n"
    async with served(lambda: SNAPSHOT) as extender:
        reply = await exchange(extender.port, target + b"Connection: close\r\n\r\n")

    assert reply.status == 404


async def test_names_of_the_settings_and_the_bound_address_are_answered() -> None:
    source = Source.of(
        EXTENDER_ADDR=":9876", EXTENDER_HOSTS="Extender.svc", EXTENDER_ALLOW_UNAUTHENTICATED="true"
    )
    rule = HeadRule(source.load(ServerSettings).own_names(), PROBES)
    source.finish()
    statuses = {}
    async with listening(echo, HostPort("127.0.0.1", 0), QUICK, rule=rule) as http_server:
        for name in ("extender.svc:9876", "0.0.0.0:9876", "127.0.0.1", "other.svc"):
            reply = await exchange(http_server.port, posted(f"Host: {name}\r\n", JSON))
            statuses[name.partition(":")[0]] = reply.status

    assert statuses == {"extender.svc": 200, "0.0.0.0": 200, "127.0.0.1": 200, "other.svc": 421}


async def test_a_known_head_is_no_way_around_the_rules() -> None:
    """The head that is remembered is the one that was allowed."""
    fine = posted(HOST, JSON).replace(b"Connection: close\r\n", b"")
    foul = fine.replace(b"Host: localhost", b"Host: evil.exam")
    async with served(lambda: SNAPSHOT) as extender:
        async with spoken(extender.port, fine) as reader:
            await reader.readuntil(b"\r\n\r\n")
            reply = await exchange(extender.port, fine + fine + foul)

        assert len(extender.recorded) == 3
    assert reply.status == 200
    assert b"421" in reply.body


# --- smuggling --------------------------------------------------------------------------------

INNER = posted(HOST, JSON, path="/inner")
SMUGGLED = {
    "two lengths": (f"{HOST}{JSON}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
    "the same length twice": (f"{HOST}{JSON}Content-Length: 1\r\nContent-Length: 1\r\n\r\na", 400),
    "a list of lengths": (f"{HOST}{JSON}Content-Length: 1, 1\r\n\r\na", 400),
    "a signed length": (f"{HOST}{JSON}Content-Length: +1\r\n\r\na", 400),
    "length, chunked": (
        f"{HOST}{JSON}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
    ),
    "chunked, length": (
        f"{HOST}{JSON}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        400,
    ),
    "chunked": (f"{HOST}{JSON}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 411),
    "xchunked": (f"{HOST}{JSON}Transfer-Encoding: xchunked\r\n\r\n", 411),
    "identity": (f"{HOST}{JSON}Transfer-Encoding: identity\r\n\r\n", 411),
    "a folded line": (f"{HOST}{JSON}Content-Length: 0\r\nA: b\r\n c\r\n\r\n", 400),
    "a folded host": (f"Host:\r\n localhost\r\n{JSON}Content-Length: 0\r\n\r\n", 400),
    "a bare line feed": (f"{HOST}{JSON}A: b\nContent-Length: 0\r\n\r\n", 400),
    "a bare return": (f"{HOST}{JSON}A: b\rContent-Length: 0\r\n\r\n", 400),
    "a nought": (f"{HOST}{JSON}A: b\0\r\nContent-Length: 0\r\n\r\n", 400),
    "a space before the colon": (f"{HOST}{JSON}Content-Length : 1\r\n\r\na", 400),
    "no name": (f"{HOST}{JSON}: b\r\nContent-Length: 0\r\n\r\n", 400),
}


@pytest.mark.parametrize("attempt", SMUGGLED)
async def test_a_head_that_two_programs_may_read_differently_is_refused(attempt: str) -> None:
    """And nothing of what follows it is read as another request."""
    paths = list[str]()

    def seen(request: Request) -> Reply:
        paths.append(request.path)
        return echo(request)

    head, status = SMUGGLED[attempt]
    async with opened(seen) as http_server:
        reply = await exchange(http_server.port, b"POST /x HTTP/1.1\r\n" + head.encode() + INNER)

    assert reply.status == status
    assert paths == []


async def test_a_refusal_comes_after_the_answers_that_were_asked_for_before_it() -> None:
    """Otherwise a proxy would give one client the reply of another."""
    go = asyncio.Event()

    async def wait(request: Request) -> Reply:
        await go.wait()
        return echo(request)

    first = posted(HOST, JSON, body=b"first").replace(b"Connection: close\r\n", b"")
    async with opened(wait) as http_server, spoken(http_server.port, first, posted(HOST)) as reader:
        await until(lambda: len(http_server.connections) == 1)
        await asyncio.sleep(0.05)
        go.set()
        heard = await asyncio.wait_for(reader.read(), PATIENCE_S)

    assert heard.index(b"first") < heard.index(b"415")


# --- memory and connections -------------------------------------------------------------------

SERVER = """
import asyncio, sys
from joulie_bus.runtime.settings import HostPort
from joulie_bus.http.exchange import Limits, Reply
from joulie_bus.http.server import listening

async def main():
    limits = Limits(**{name: int(value) for name, value in (a.split("=") for a in sys.argv[1:])})
    echo = lambda request: Reply(200, b"%d" % len(request.body))
    async with listening(echo, HostPort("127.0.0.1", 0), limits) as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


class Process:
    """A listener in a process of its own, whose memory can be measured."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid, self.port = pid, port

    def rss(self) -> float:
        """MiB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / MIB


@contextlib.asynccontextmanager
async def process(**limits: int) -> AsyncGenerator[Process, None]:
    told = [f"{name}={value}" for name, value in limits.items()]
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER, *told),
        stdout=PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert running.stdout is not None
    try:
        yield Process(running.pid, int(await running.stdout.readline()))
    finally:
        running.kill()
        await running.wait()


def unfinished(size: int) -> bytes:
    return f"POST /x HTTP/1.1\r\n{HOST}{JSON}Content-Length: {size}\r\n\r\n".encode()


async def statuses(readers: list[asyncio.StreamReader]) -> list[int]:
    """Of those that have been answered by now."""
    found = []
    for reader in readers:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                found.append(int((await reader.readline()).split()[1]))
    return found


async def test_promised_bytes_take_no_memory() -> None:
    async with process() as listener, contextlib.AsyncExitStack() as stack:
        before = listener.rss()
        for _ in range(8):
            begun = (unfinished(63 * MIB), bytes(2 * MIB))
            await stack.enter_async_context(spoken(listener.port, *begun))

        assert listener.rss() - before < 40


@pytest.mark.slow
async def test_unfinished_bodies_of_all_connections_share_one_budget() -> None:
    """Five bodies of 63 MiB, all but their last byte: two fit, three are refused and let go."""
    async with process() as listener, contextlib.AsyncExitStack() as stack:
        before = listener.rss()
        body = bytes(63 * MIB - 1)

        async def begin() -> asyncio.StreamReader:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            stack.callback(writer.close)
            with contextlib.suppress(OSError):
                writer.write(unfinished(63 * MIB) + body)
                await writer.drain()
            return reader

        readers = [await begin() for _ in range(5)]
        refused = await statuses(readers)
        grown = listener.rss() - before
        small = await exchange(listener.port, posted(HOST, JSON))

    assert refused == [503] * 3
    assert grown < 128 + 16
    assert (small.status, small.body) == (200, b"%d" % len(BODY))


async def test_two_clusters_of_5000_whole_nodes_pass_at_once() -> None:
    body = bytes(45 * MIB)
    async with process() as listener:
        both = await asyncio.gather(
            *(exchange(listener.port, posted(HOST, JSON, body=body)) for _ in range(2))
        )

    assert [(reply.status, reply.body) for reply in both] == [(200, b"%d" % len(body))] * 2


async def test_replies_that_no_client_reads_count_too() -> None:
    """They lie in memory as requests do; nothing is read while they fill the budget."""
    limits = QUICK._replace(buffers=8 * MIB, body=MIB, body_s=PATIENCE_S)
    large = Reply(200, bytes(30 * MIB))
    asked = posted(HOST, JSON).replace(b"Connection: close\r\n", b"")
    async with opened(lambda _: large, limits) as http_server, spoken(http_server.port, asked):
        await until(lambda: http_server.budget.held > limits.buffers)
        reply = await exchange(http_server.port, posted(HOST, JSON))
        assert reply.status == 503
    async with opened(lambda _: large, limits) as http_server:
        async with spoken(http_server.port, asked):
            await until(lambda: http_server.budget.held > limits.buffers)
        await until(lambda: http_server.budget.held == 0)


async def test_a_budget_that_was_used_is_whole_again() -> None:
    limits = QUICK._replace(buffers=QUICK.body)
    async with opened(echo, limits) as http_server:
        for _ in range(3):
            for sent in (posted(HOST, JSON, body=bytes(QUICK.body)), unfinished(9000) + b"xx"):
                async with spoken(http_server.port, sent) as reader:
                    if sent.endswith(b"\0"):
                        await asyncio.wait_for(reader.read(), PATIENCE_S)
            await until(lambda: http_server.budget.held == 0)


async def test_connections_beyond_the_limit_get_503_and_are_closed() -> None:
    limits = QUICK._replace(connections=3)
    before = counted("connections")
    async with opened(echo, limits) as http_server, contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(spoken(http_server.port))
        await until(lambda: len(http_server.connections) == 3)
        async with spoken(http_server.port) as reader:
            heard = await asyncio.wait_for(reader.read(), PATIENCE_S)

        assert heard.startswith(b"HTTP/1.1 503 ")
        assert b"3 connections are open" in heard
        assert counted("connections") - before == 1
        await stack.aclose()
        await until(lambda: not http_server.connections)
        assert (await exchange(http_server.port, posted(HOST, JSON))).status == 200


async def test_clients_that_never_finish_a_handshake_count_and_are_cut(tmp_path: Path) -> None:
    authority = Authority.made(tmp_path, "authority")
    certificates = Certificates(*authority.issue(tmp_path, "server"), authority.file)
    limits = QUICK._replace(connections=3, head_s=0.5)
    async with (
        opened(echo, limits, certificates) as http_server,
        contextlib.AsyncExitStack() as stack,
    ):
        silent = [await stack.enter_async_context(spoken(http_server.port)) for _ in range(3)]
        await until(lambda: len(http_server.arriving) == 3)
        async with spoken(http_server.port) as reader:
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        for reader in silent:
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        await until(lambda: not http_server.arriving)


async def test_a_client_without_a_certificate_may_not_stay(tmp_path: Path) -> None:
    authority = Authority.made(tmp_path, "authority")
    certificates = Certificates(*authority.issue(tmp_path, "server"), authority.file)
    limits = QUICK._replace(head_s=0.1, keep_alive_s=3600.0)
    tls = authority.trusted()
    async with opened(echo, limits, certificates) as http_server:
        reader, writer = await asyncio.open_connection("127.0.0.1", http_server.port, ssl=tls)
        with contextlib.suppress(ConnectionError):  # within an hour less
            await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()


# --- where it listens -------------------------------------------------------------------------


def started(**values: str) -> ServerSettings:
    source = Source.of(**values)
    loaded = source.load(ServerSettings)
    source.finish()
    return loaded


@pytest.mark.parametrize("at", [":9876", "0.0.0.0:9876", "10.1.2.3:1", "extender.example:1"])
def test_beyond_loopback_it_does_not_start_without_certificates_of_clients(at: str) -> None:
    with pytest.raises(SettingsError, match="EXTENDER_ALLOW_UNAUTHENTICATED=true") as caught:
        started(EXTENDER_ADDR=at)
    assert "EXTENDER_TLS_CLIENT_CA_FILE" in str(caught.value)


def test_beyond_loopback_a_server_certificate_needs_a_client_ca(tmp_path: Path) -> None:
    cert, key = Authority.made(tmp_path, "authority").issue(tmp_path, "server")
    tls = {"EXTENDER_TLS_CERT_FILE": str(cert), "EXTENDER_TLS_KEY_FILE": str(key)}

    with pytest.raises(SettingsError, match="EXTENDER_TLS_CLIENT_CA_FILE"):
        started(EXTENDER_ADDR=":9876", **tls)
    started(EXTENDER_ADDR=":9876", EXTENDER_TLS_CLIENT_CA_FILE=str(cert), **tls)


def test_a_setting_by_name_opens_it_and_loopback_needs_none() -> None:
    started(EXTENDER_ADDR=":9876", EXTENDER_ALLOW_UNAUTHENTICATED="true")
    for at in ("127.0.0.1:1", "localhost:1", "[::1]:1"):
        started(EXTENDER_ADDR=at)
