"""The extenders for comparison: one that only echoes, and a bare one in Python.

    .venv/bin/python benchmarks/kit/peers.py {echo,bare} PORT NODES

Both use uvloop and httptools with one write per reply, so that only the work differs.
"""

import asyncio
import sys
from typing import Any, cast

import httptools
import msgspec
import uvloop

SCORE = 41


def name_of(number: int) -> str:
    return f"node-{number:05d}.example.internal"


class Peer(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, scores: dict[str, int] | None) -> None:
        self._scores = scores
        self._parser = httptools.HttpRequestParser(self)
        self._path, self._parts = b"", list[bytes]()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path = url

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        body = b"".join(self._parts)
        self._parts = []
        reply = echoed(body) if self._scores is None else self._answer(body, self._scores)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self.transport.write(head % len(reply) + reply)

    def _answer(self, body: bytes, scores: dict[str, int]) -> bytes:
        """Decodes, looks up and encodes, without pods, rules or a log."""
        args = msgspec.json.decode(body)
        if args["NodeNames"] is None:
            return self._whole(args["Nodes"]["items"], scores)
        names: list[str] = args["NodeNames"]
        if self._path == b"/filter":
            return filtered({"NodeNames": [name for name in names if name in scores]})
        return msgspec.json.encode([{"Host": n, "Score": scores.get(n, 50)} for n in names])

    def _whole(self, items: list[dict[str, Any]], scores: dict[str, int]) -> bytes:
        if self._path == b"/filter":
            kept = [item for item in items if item["metadata"]["name"] in scores]
            return filtered({"Nodes": {"items": kept}})
        names = [item["metadata"]["name"] for item in items]
        return msgspec.json.encode([{"Host": n, "Score": scores.get(n, 50)} for n in names])


def filtered(passed: dict[str, Any]) -> bytes:
    return msgspec.json.encode({**passed, "FailedNodes": {}, "Error": ""})


def echoed(body: bytes) -> bytes:
    """The list of names as it came, without decoding it."""
    at = body.rfind(b'"NodeNames":')
    return b'{"Nodes":null,' + body[at:]


async def serve(kind: str, port: int, nodes: int) -> None:
    scores = {name_of(number): SCORE for number in range(nodes)} if kind == "bare" else None
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Peer(scores), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
