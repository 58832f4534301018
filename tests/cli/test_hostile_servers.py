"""Clients of ours against hostile servers: each ends in time, with its own error, and with bounded
memory, and follows no redirect.
"""

import asyncio
import contextlib
import resource
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from http.client import HTTPException
from pathlib import Path

import aiohttp
import pytest

from hostile_server import EVERY, Answer, HostileServer, hostile
from joulie.client import streamed
from joulie.client.console import ConsoleClient
from joulie_answers.readers import gauges
from joulie_bus.errors import BucketFailed, ConsoleNotReached, ConsoleRefused
from joulie_bus.s3 import bucket
from joulie_bus.s3.bucket import Bucket, BucketSettings, bucket_place
from joulie_operator.controllers.controller_file import RedfishEntry
from joulie_operator.controllers.failure import ControllerFailed
from joulie_operator.controllers.redfish_service import RedfishService
from joulie_operator.facts.grid_documents import GridUnreadable, read_document
from joulie_operator.telemetry import grid, prometheus
from joulie_operator.telemetry.bmc_connections import Connections
from joulie_operator.telemetry.prometheus import NoReading
from joulie_projections.witness import asking
from joulie_projections.witness.server import PATH
from one_broker import anyio_backend

__all__ = ["anyio_backend"]  # a fixture
pytestmark = [pytest.mark.anyio, pytest.mark.long]
WHOLE_S = 1.0  # of an exchange, in these tests
MOST_S = 30.0  # on a busy machine; what is not bounded does not end at all
MOST_MIB = 192  # by which the process may grow
Client = Callable[[str, Path], Awaitable[object]]


async def console(url: str, _: Path) -> object:
    async with ConsoleClient(url, timeout_s=WHOLE_S) as client:
        return await client.status()


async def console_stream(url: str, _: Path) -> object:
    async with ConsoleClient(url, timeout_s=WHOLE_S) as client:
        return [event async for event in client.stream(patience_s=WHOLE_S)]


async def bucket_object(url: str, _: Path) -> object:
    return await asyncio.to_thread(a_bucket(url).get, "a/b")


async def bucket_names(url: str, _: Path) -> object:
    return await asyncio.to_thread(lambda: list(a_bucket(url).names()))


def a_bucket(url: str) -> Bucket:
    settings = BucketSettings(access_key="key", secret_key="secret")
    return Bucket(bucket_place(f"{url}/heads"), settings)


async def witness(url: str, _: Path) -> object:
    found = await asyncio.to_thread(asking._request, url, "POST", PATH, b"x")
    if isinstance(found, Exception):
        raise found
    return found.status == 200


async def prometheus_query(url: str, _: Path) -> object:
    async with prometheus.session() as session:
        return await prometheus.query(session, url, "up")


async def facility(url: str, _: Path) -> object:
    async with prometheus.session() as session:
        return prometheus.numbers(await prometheus.fetch(session, url))


async def grid_document(url: str, _: Path) -> object:
    async with prometheus.session() as session:
        return read_document(await grid._read(session, url))


async def bmc(url: str, place: Path) -> object:
    for name in ("user", "password"):
        (place / name).write_text("secret")
        (place / name).chmod(0o600)
    entry = RedfishEntry(
        address=url, user_file=str(place / "user"), password_file=str(place / "password")
    )
    connections = Connections()
    async with asyncio.timeout(WHOLE_S), connections.session(url) as session:
        return await RedfishService(session, entry).read("/redfish/v1/Chassis")


async def own_metrics(url: str, _: Path) -> object:
    found = await asyncio.to_thread(gauges.gauges_of, {"projector": url.removeprefix("http://")})
    if not any(found.values()):
        raise LookupError("no gauges")
    return found


CLIENTS: Sequence[tuple[Client, tuple[type[Exception], ...]]] = (
    (console, (ConsoleNotReached, ConsoleRefused)),
    (console_stream, (ConsoleNotReached, ConsoleRefused)),
    (bucket_object, (BucketFailed,)),
    (bucket_names, (BucketFailed,)),
    (witness, (OSError, HTTPException)),
    (prometheus_query, (NoReading,)),
    (facility, (NoReading,)),
    (grid_document, (GridUnreadable,)),
    (bmc, (ControllerFailed, TimeoutError)),
    (own_metrics, (LookupError,)),
)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time-outs that a test can wait for."""
    for module in (bucket, asking, gauges):
        monkeypatch.setattr(module, "TIMEOUT_S", WHOLE_S / 2)
    monkeypatch.setattr(bucket, "ANSWER_S", WHOLE_S)
    monkeypatch.setattr(bucket, "SLOWEST", 1 << 40)
    for name in ("CONNECT_S", "SILENT_S"):
        monkeypatch.setattr(streamed, name, WHOLE_S)
    for module in (asking, gauges):
        monkeypatch.setattr(module, "WHOLE_S", WHOLE_S)
    for module in (prometheus, grid):
        monkeypatch.setattr(module, "PATIENCE", aiohttp.ClientTimeout(total=WHOLE_S))


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("answer", EVERY, ids=lambda answer: answer.__name__)
@pytest.mark.parametrize(
    ("client", "errors"), CLIENTS, ids=[client.__name__ for client, _ in CLIENTS]
)
async def test_a_client_of_a_hostile_server_ends_in_time_with_its_own_error(
    client: Client, errors: tuple[type[Exception], ...], answer: Answer, tmp_path: Path
) -> None:
    before = peak_mib()
    with hostile(answer) as (server, other):
        began = time.monotonic()
        with contextlib.suppress(*errors):  # what it read may mean something to it
            async with asyncio.timeout(MOST_S):
                await client(server.url, tmp_path)
        took_s = time.monotonic() - began

        assert server.connections > 0
        assert other.connections == 0
    assert took_s < MOST_S
    assert peak_mib() - before < MOST_MIB


def listing_without_end(_: HostileServer) -> Iterator[bytes | float]:
    more = b"<NextContinuationToken>x</NextContinuationToken>"
    yield b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(more) + more


@pytest.mark.usefixtures("hurried")
async def test_a_list_of_a_bucket_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bucket, "MOST_LISTED", 3 * bucket.LISTED_AT_ONCE)
    with hostile(listing_without_end) as (server, _):
        with pytest.raises(BucketFailed, match="more than 3000 objects"):
            await bucket_names(server.url, tmp_path)
        assert server.connections == 3


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
