"""An extender served over HTTP, and a client that sends raw bytes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

import msgspec

from bus_kit import NOON, SECOND, hardware
from go_http import Client
from joulie_bus.events import DecisionEntry, codec
from joulie_bus.http.certificates import Certificates
from joulie_bus.http.exchange import Handler, Limits, Request
from joulie_bus.http.server import HttpServer, listening
from joulie_bus.runtime.settings import HostPort
from joulie_extender.answering.extender import Extender, Record
from joulie_extender.answering.fallback_policy import FallbackPolicy
from joulie_extender.catalogue.weights import Weights
from joulie_extender.http.routes import routed
from joulie_projections.state.state import NodeState, Sample
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.view.view import ViewSnapshot
from kube_scheduler import Block

PATIENCE_S = 120.0
PATIENT = FallbackPolicy(deadline_s=PATIENCE_S)  # a busy machine must not decide a test
JSON = "Content-Type: application/json\r\n"
QUICK = Limits(body=10_000, drain_s=0.0)


def performing(name: str, ordinal: int, watts: int = 200) -> NodeState:
    return NodeState(
        ordinal=ordinal,
        at=NOON,
        hardware=hardware(name),
        profile="performance",
        samples=(Sample(NOON - 60 * SECOND, watts * 1000), Sample(NOON, watts * 1000)),
    )


def saving(name: str, ordinal: int, watts: int = 100) -> NodeState:
    return NodeState(
        ordinal=ordinal,
        at=NOON,
        hardware=hardware(name),
        profile="eco",
        samples=(Sample(NOON, watts * 1000),),
    )


def snapshot_of(*nodes: NodeState, position: int = 17, age_ms: int = 3) -> ViewSnapshot:
    """Named as their hardware is."""
    named = {node.hardware.node: node for node in nodes if node.hardware is not None}
    return ViewSnapshot(position, TwinColumns.of(named, 0), age_ms)


class Received(NamedTuple):
    status: int
    head: bytes
    body: bytes

    def json(self) -> object:
        return msgspec.json.decode(self.body)


class Served(NamedTuple):
    port: int
    recorded: list[DecisionEntry]
    extender: Extender
    http_server: HttpServer
    clients: list[Client]

    def block(self, *, prefix: str = "", preempts: bool = True, **more: object) -> Block:
        """This extender, as kube-scheduler's configuration names it."""
        self.clients.append(Client("127.0.0.1", self.port, prefix))
        return Block(self.clients[-1], preempts=preempts, **more)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def served(  # noqa: PLR0913
    look: Callable[[], ViewSnapshot],
    *,
    is_ready: Callable[[], bool] = lambda: True,
    fallback_policy: FallbackPolicy = PATIENT,
    limits: Limits = QUICK,
    record: Record | None = None,
    clock: Callable[[], int] = lambda: NOON,
    weights: Weights = Weights(),  # noqa: B008
    certificates: Certificates | None = None,
) -> AsyncGenerator[Served, None]:
    recorded: list[DecisionEntry] = []

    def keep(entry: DecisionEntry) -> None:
        codec.encode(entry)  # as the spool does
        recorded.append(entry)

    extender = Extender(look, record or keep, weights, clock, is_ready, fallback_policy)
    extender.defer = asyncio.get_running_loop().call_soon
    async with opened(routed(extender, lambda: False), limits, certificates) as http_server:
        found = Served(http_server.port, recorded, extender, http_server, [])
        try:
            yield found
        finally:
            for client in found.clients:
                await client.close()


@contextlib.asynccontextmanager
async def opened(
    handler: Handler, limits: Limits = QUICK, certificates: Certificates | None = None
) -> AsyncGenerator[HttpServer, None]:
    async with listening(handler, HostPort("127.0.0.1", 0), limits, certificates) as http_server:
        yield http_server


async def exchange(port: int, request: bytes) -> Received:
    """Writes the bytes as they are; reads until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**26)
    writer.write(request)
    async with asyncio.timeout(PATIENCE_S):
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.read()
    writer.close()
    return Received(int(head.split()[1]), head, body)


async def get(port: int, path: str, method: str = "GET") -> Received:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    return await exchange(port, head.encode())


async def post(port: int, path: str, body: bytes) -> Received:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{JSON}"
    return await exchange(port, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def request(body: bytes, *, begun: float = float("inf")) -> Request:
    """As the server passes it on; it is never late."""
    return Request("POST", "/", body, begun)
