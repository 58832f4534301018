"""Sends an HTTP server mutated requests of its own OpenAPI document: paths, queries, heads, bodies,
connections that are half closed, clients that hardly read, and many streams of events.

A seed repeats the requests. Every answer is counted by its status; one that is an error of the
server is kept with its request.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

ANSWER_S = 40.0  # a report has 35 s
STREAMS = 80  # of events, at once
SLOW_READERS = 8
ASKERS = 24
WORDS = (
    *("", "0", "-1", "1", "9223372036854775807", "9223372036854775808", "1e400", "NaN", "٣", "%"),
    *("null", "true", "now", "-1h", "2026-11-29T00:00:00Z", "0001-01-01", "9999-12-31T23:59:60Z"),
    *("a\0b", "a\r\nX: y", "../../etc/passwd", "%2e%2e", "'; DROP TABLE decision;--", "<script>"),
    *("\ud800", "🜲" * 50, "x" * 5000, "[" * 3000, "{}", "*", "joulie", "default/train-0", "n1"),
)
PLAUSIBLE = ("1", "5", "10", "100", "now", "-1h", "-10m", "true", "json", "gpu", "performance")
IDS = (*(f"{entry}.{position}" for entry in (0, 1, 90) for position in (0, 1, 400)), "-1", "x")
UNKNOWN = ("", "x", "at[]", "__proto__")
HEADS = (
    *("Accept: text/html", "Accept: */*;q=nonsense", "Accept-Encoding: gzip, br;q=2, x"),
    *("Range: bytes=0-", "If-None-Match: *", "If-Modified-Since: yesterday", "no colon"),
    *("Last-Event-ID: -5", "Last-Event-ID: 9999999999999999999999", "Last-Event-ID: \u00e9"),
    *("Cookie: " + "a=b; " * 500, "X-Forwarded-For: 10.0.0.1", "Expect: 100-continue"),
    *("Upgrade: websocket", "Connection: Upgrade, close", "Transfer-Encoding: chunked, gzip"),
    *("Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Type: \x7f"),
    *("Authorization: Bearer " + "x" * 3000, "Origin: https://evil.example", ": no name"),
)
ODD_METHODS = ("HEAD", "OPTIONS", "POST", "PUT", "DELETE", "TRACE", "G\tT", "")
METHODS = ("GET",) * 16 + ODD_METHODS
HOSTS = ("",) * 20 + ("evil.example", "127.0.0.1:1", "a b", "[::1")
VERSIONS = ("HTTP/1.1",) * 12 + ("HTTP/1.0", "HTTP/2.0", "HTTP/9", "", "HTCPCP/1.0")


class Fuzzer:
    def __init__(
        self, address: str, document: dict[str, Any], known: Sequence[str], seed: int
    ) -> None:
        self.statuses: Counter[str] = Counter()
        self.errors: list[tuple[str, bytes]] = []  # status and request
        self.streams = 0
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._paths = sorted(document["paths"])
        self._queries = _queries_of(document)
        self._known = (*PLAUSIBLE, *known)
        self._random = random.Random(seed)

    async def run(self) -> None:
        """Until it is cancelled."""
        clients: Sequence[Callable[[], Any]] = (
            *([self._asks] * ASKERS),
            *([self._reads_slowly] * SLOW_READERS),
            *([self._follows] * STREAMS),
        )
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(self._repeat(client))

    async def _repeat(self, client: Callable[[], Any]) -> None:
        while True:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(ANSWER_S):
                    await client()
            await asyncio.sleep(self._random.random() / 20)

    # --- clients ------------------------------------------------------------------------------

    async def _asks(self) -> None:
        request = self._request()
        reader, writer = await self._connected()
        try:
            writer.write(request)
            end = self._random.random()
            if end < 0.2:
                writer.write_eof()  # and reads
            elif end < 0.3:
                writer.transport.abort()
                return
            self._count(await reader.readline(), request)
            await reader.read(1 << 20)
        finally:
            writer.close()

    async def _reads_slowly(self) -> None:
        request = self._head("GET", self._target(), ["Connection: close"])
        reader, writer = await self._connected(limit=64)
        try:
            writer.write(request * self._random.choice((1, 1, 20)))
            self._count(await reader.read(15), request)
            for _ in range(self._random.randrange(200)):
                if not await reader.read(7):
                    return
                await asyncio.sleep(0.02)
        finally:
            writer.transport.abort()

    async def _follows(self) -> None:
        """A stream of events, for some seconds; some read nothing of it."""
        heads = ["Accept: text/event-stream", f"Last-Event-ID: {self._random.choice(IDS)}"]
        request = self._head("GET", "/v1/stream", heads)
        reader, writer = await self._connected()
        try:
            writer.write(request)
            status = self._count(await reader.readline(), request)
            self.streams += status == "200"
            until = asyncio.get_running_loop().time() + self._random.uniform(0, 8)
            reads = self._random.random() < 0.7
            while asyncio.get_running_loop().time() < until:
                if not reads:
                    await asyncio.sleep(0.5)
                    continue
                # `wait_for` loses a cancellation that meets a result, and this never ended then.
                async with asyncio.timeout(8):
                    if not await reader.read(1 << 16):
                        return
        finally:
            writer.transport.abort()

    async def _connected(
        self, limit: int = 1 << 16
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, self._port, limit=limit)

    def _count(self, line: bytes, request: bytes) -> str:
        status = line[9:12].decode("latin-1") if line.startswith(b"HTTP/") else "closed"
        self.statuses[status] += 1
        if status.startswith("5"):
            self.errors.append((status, request[:2000]))
        return status

    # --- requests -----------------------------------------------------------------------------

    def _request(self) -> bytes:
        choose = self._random.choice
        if self._random.random() < 0.05:
            return self._random.randbytes(choose((1, 50, 5000)))
        heads = [choose(HEADS) for _ in range(choose((0, 0, 0, 0, 1, 2, 5)))]
        body = self._body() if self._random.random() < 0.2 else b""
        if body and self._random.random() < 0.8:
            heads.append(f"Content-Length: {len(body) + choose((0, 0, 0, -1, 5))}")
        head = self._head(choose(METHODS), self._target(), heads, choose(VERSIONS))
        return self._mutated(head + body) if self._random.random() < 0.1 else head + body

    def _head(
        self, method: str, target: str, heads: Sequence[str], version: str = "HTTP/1.1"
    ) -> bytes:
        host = self._random.choice(HOSTS)
        lines = (f"{method} {target} {version}", f"Host: {host or f'{self._host}:{self._port}'}")
        text = "\r\n".join((*lines, *heads, "", ""))
        return text.encode("utf-8", "surrogatepass")

    def _target(self) -> str:
        known = self._random.choice(self._paths)
        path = "/".join(self._word() if part[:1] == "{" else part for part in known.split("/"))
        if self._random.random() < 0.1:
            odd = (f"/{path}", f"{path}/", f"{path}//..", f"http://x{path}", "*")
            path = self._random.choice(odd)
        query = "&".join(f"{name}={value}" for name, value in self._parameters(known))
        return f"{path}?{query}" if query else path

    def _parameters(self, path: str) -> Iterator[tuple[str, str]]:
        """Mostly those of the document, as another one is refused before anything is read."""
        known = self._queries[path]
        for name in self._random.sample(sorted(known), self._random.randint(0, min(3, len(known)))):
            yield name, self._value(known[name])
        if self._random.random() < 0.05:
            yield self._random.choice(UNKNOWN), self._word()

    def _value(self, schema: dict[str, Any]) -> str:
        if self._random.random() < 0.2:
            return self._word()
        match schema:
            case {"enum": [*values]}:
                return str(self._random.choice(values))
            case {"type": "integer"}:
                return str(self._random.choice((1, 2, 5, 10, 100, 1000)))
            case {"type": "boolean"}:
                return self._random.choice(("true", "false"))
            case _:
                return self._word()

    def _word(self) -> str:
        often = self._known if self._random.random() < 0.7 else WORDS
        word = self._random.choice(often)
        if self._random.random() < 0.05:
            return word  # as it is
        return quote(word, safe="", errors="surrogatepass")

    def _body(self) -> bytes:
        return self._random.choice(
            (b"{", b"null", b"[" * 5000, b"a=b&c=d", self._random.randbytes(300), b"\0" * 70_000)
        )

    def _mutated(self, request: bytes) -> bytes:
        """Some bytes replaced, taken away or doubled."""
        changed = bytearray(request)
        for _ in range(self._random.randrange(1, 6)):
            at = self._random.randrange(len(changed))
            changed[at : at + self._random.choice((0, 1, 4))] = self._random.randbytes(
                self._random.choice((0, 1, 1, 3))
            )
            changed = changed or bytearray(b"\n")
        return bytes(changed)


def _queries_of(document: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """The schema of each parameter of each path."""
    return {
        path: {
            each["name"]: _schema(each["schema"])
            for operation in at.values()
            for each in operation.get("parameters", ())
            if each["in"] == "query"
        }
        for path, at in document["paths"].items()
    }


def _schema(found: dict[str, Any]) -> dict[str, Any]:
    """The first one of several."""
    several: list[dict[str, Any]] = found.get("anyOf", [found])
    return several[0]


def document_of(body: bytes) -> dict[str, Any]:
    read: dict[str, Any] = msgspec.json.decode(body)
    return read
