"""What clients of the webhook may hold, and which of them are answered."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from authority import Authority
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.settings import HostPort
from joulie_bus.runtime.tasks import background
from joulie_operator.admission.webhook import LIMITS, Serving, serve
from joulie_operator.kube.api_client import ApiServer as Api

pytestmark = pytest.mark.anyio
PATIENCE_S = 120
POD = {"metadata": {"generateName": "p-"}, "spec": {"containers": []}}
REVIEW = json.dumps({"request": {"uid": "u1", "namespace": "n", "object": POD}}).encode()
QUICK = LIMITS._replace(connections=4, body=10_000, buffers=15_000, head_s=0.3, body_s=0.3)
PATIENT = QUICK._replace(head_s=PATIENCE_S, body_s=PATIENCE_S)


class Webhook:
    def __init__(self, port: int, trust: ssl.SSLContext) -> None:
        self.port, self.trust = port, trust

    async def opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trust)

    async def asked(self, body: bytes = REVIEW, path: str = "/mutate") -> tuple[int, bytes]:
        reader, writer = await self.opened()
        try:
            writer.write(head(len(body), path) + body)
            async with asyncio.timeout(PATIENCE_S):
                found = await reader.read()
        finally:
            writer.close()
        status, _, rest = found.partition(b"\r\n")
        return int(status.split()[1]), rest.partition(b"\r\n\r\n")[2]

    async def is_ready(self) -> bool:
        with contextlib.suppress(OSError, IndexError):
            return (await self.asked())[0] in (200, 403)
        return False


def head(size: int, path: str = "/mutate") -> bytes:
    lines = f"POST {path} HTTP/1.1\r\nHost: w\r\nContent-Type: application/json\r\n"
    return f"{lines}Connection: close\r\nContent-Length: {size}\r\n\r\n".encode()


@contextlib.asynccontextmanager
async def webhook(
    api: Api, directory: Path, authority: Authority, **options: Any
) -> AsyncGenerator[Webhook, None]:
    cert, key = authority.issue(directory, "webhook")
    at = HostPort("127.0.0.1", free_port())
    serving = Serving(at, cert, key, "joulie", limits=QUICK)._replace(**options)
    async with background(serve(api, serving), "webhook"):
        made = Webhook(at.port, authority.trusted())
        for _ in range(3000):
            if await made.is_ready():
                break
            await asyncio.sleep(0.02)
        yield made


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.made(tmp_path, "authority")


async def test_a_review_is_answered(api: Api, tmp_path: Path, authority: Authority) -> None:
    async with webhook(api, tmp_path, authority) as made:
        status, body = await made.asked()

    assert status == 200
    assert json.loads(body)["response"]["allowed"] is True


async def test_only_named_clients_of_the_authority_are_answered(
    api: Api, tmp_path: Path, authority: Authority
) -> None:
    options = {"client_ca": authority.file, "client_names": frozenset({"kube-apiserver"})}
    async with webhook(api, tmp_path, authority, **options) as made:
        statuses = {"": (await made.asked())[0]}
        for name in ("kube-apiserver", "tenant"):
            made.trust = authority.trusted()
            made.trust.load_cert_chain(*authority.issue(tmp_path, name))
            statuses[name] = (await made.asked())[0]

    assert statuses == {"": 403, "kube-apiserver": 200, "tenant": 403}


async def test_heads_that_never_end_are_ended(
    api: Api, tmp_path: Path, authority: Authority
) -> None:
    async with webhook(api, tmp_path, authority) as made:
        reader, writer = await made.opened()
        writer.write(b"POST /mutate HTTP/1.1\r\nHost: w\r\n")
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()

        assert (await made.asked())[0] == 200


async def test_a_body_that_never_ends_is_ended(
    api: Api, tmp_path: Path, authority: Authority
) -> None:
    async with webhook(api, tmp_path, authority) as made:
        reader, writer = await made.opened()
        writer.write(head(9_000) + b"{")
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                await reader.read()
        writer.close()

        assert (await made.asked())[0] == 200


async def test_no_more_connections_than_the_limit_are_kept(
    api: Api, tmp_path: Path, authority: Authority
) -> None:
    async with webhook(api, tmp_path, authority, limits=PATIENT) as made:
        held = [await made.opened() for _ in range(PATIENT.connections)]
        with pytest.raises((OSError, IndexError)):
            await made.asked()
        for _, writer in held:
            writer.close()

        for _ in range(3000):
            if await made.is_ready():
                break
            await asyncio.sleep(0.02)
        assert (await made.asked())[0] == 200


async def test_bodies_hold_no_more_than_their_budget(
    api: Api, tmp_path: Path, authority: Authority
) -> None:
    async with webhook(api, tmp_path, authority, limits=PATIENT) as made:
        _, writer = await made.opened()
        writer.write(head(9_000) + b" " * 8_999)
        await writer.drain()
        large = REVIEW + b" " * (9_000 - len(REVIEW))
        statuses = [(await made.asked(large))[0] for _ in range(3)]
        writer.close()

    assert statuses[-1] == 503


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (head(10_001), 413),
        (b"POST /mutate HTTP/1.1\r\nHost: w\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (head(7) + b"no JSON", 400),
        (head(3) + b'"\xff"', 400),
        (head(20_0) + b"[" * 200, 400),
    ],
    ids=["too large", "without a length", "no JSON", "no UTF-8", "deep"],
)
async def test_a_request_that_no_api_server_sends_is_refused(
    api: Api, tmp_path: Path, authority: Authority, sent: bytes, status: int
) -> None:
    async with webhook(api, tmp_path, authority) as made:
        reader, writer = await made.opened()
        writer.write(sent)
        async with asyncio.timeout(PATIENCE_S):
            line = await reader.readline()
        writer.close()

    assert line.split()[1] == str(status).encode()
