"""TLS as kube-scheduler speaks it: its own certificate, ours renewed while it talks to us."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest

from authority import Authority
from extender_kit import JSON, QUICK, opened
from go_http import CallFailed, Client
from joulie_bus.core.certificate_names import certificate_names
from joulie_bus.core.http_head import HeadRule
from joulie_bus.errors import SettingsError
from joulie_bus.http.certificates import Certificates
from joulie_bus.http.connection import LARGE
from joulie_bus.http.exchange import Reply, Request
from joulie_bus.http.server import listening
from joulie_bus.runtime.settings import HostPort, Source
from joulie_extender.http.routes import PROBES
from joulie_extender.settings import ServerSettings

pytestmark = pytest.mark.anyio


def echo(request: Request) -> Reply:
    return Reply(200, request.path.encode())


def trusting(authority: Authority, own: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    if own is not None:
        context.load_cert_chain(*own)
    return context


async def said_to(port: int, context: ssl.SSLContext) -> bytes:
    client = Client("127.0.0.1", port, tls=context)
    try:
        return await client.post("x", b"", 20)
    finally:
        await client.close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.made(tmp_path, "authority")


@pytest.fixture
def ours(authority: Authority, tmp_path: Path) -> tuple[Path, Path]:
    return authority.issue(tmp_path, "server")


async def test_tls_uses_the_certificate_of_the_settings(
    authority: Authority, ours: tuple[Path, Path]
) -> None:
    async with opened(echo, QUICK, Certificates(*ours, None)) as http_server:
        assert await said_to(http_server.port, trusting(authority)) == b"/x"


async def test_a_large_body_comes_through_tls(
    authority: Authority, ours: tuple[Path, Path]
) -> None:
    body = b"0123456789abcdef" * (LARGE // 8)
    limits = QUICK._replace(body=len(body))
    async with opened(
        lambda asked: Reply(200, bytes(asked.body)), limits, Certificates(*ours, None)
    ) as http_server:
        client = Client("127.0.0.1", http_server.port, tls=trusting(authority))
        heard = [await client.post("x", body, 20) for _ in range(2)]
        await client.close()

    assert heard == [body] * 2


async def test_only_a_client_with_a_certificate_of_the_ca_is_answered(
    authority: Authority, ours: tuple[Path, Path], tmp_path: Path
) -> None:
    scheduler = authority.issue(tmp_path, "scheduler")
    async with opened(echo, QUICK, Certificates(*ours, authority.file)) as http_server:
        assert await said_to(http_server.port, trusting(authority, scheduler)) == b"/x"
        with pytest.raises(CallFailed, match="code 403"):
            await said_to(http_server.port, trusting(authority))


@pytest.mark.parametrize(
    ("names", "answered"),
    [("scheduler", True), ("other, scheduler", True), ("other", False), ("Scheduler", False)],
)
async def test_of_the_clients_of_the_ca_only_those_of_the_setting_are_answered(
    authority: Authority, ours: tuple[Path, Path], tmp_path: Path, names: str, answered: bool
) -> None:
    scheduler = authority.issue(tmp_path, "scheduler")
    certificates = Certificates(*ours, authority.file, certificate_names(names))
    async with opened(echo, QUICK, certificates) as http_server:
        with contextlib.nullcontext() if answered else pytest.raises(CallFailed, match="code 403"):
            await said_to(http_server.port, trusting(authority, scheduler))


async def test_a_certificate_of_a_server_calls_nothing(
    authority: Authority, ours: tuple[Path, Path]
) -> None:
    certificates = Certificates(*ours, authority.file, certificate_names("scheduler"))
    async with opened(echo, QUICK, certificates) as http_server:
        with pytest.raises(CallFailed, match="code 403"):
            await said_to(http_server.port, trusting(authority, ours))


@pytest.mark.parametrize("path", ["filter", "bind", "explain/u1", "nothing", "healthz/../filter"])
async def test_a_client_without_a_certificate_is_refused_before_its_body_is_read(
    authority: Authority, ours: tuple[Path, Path], path: str
) -> None:
    head = f"POST /{path} HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: 9000\r\n\r\n"
    async with opened(echo, QUICK, Certificates(*ours, authority.file)) as http_server:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", http_server.port, ssl=trusting(authority)
        )
        writer.write(head.encode())
        status = await asyncio.wait_for(reader.readline(), 60)
        writer.close()

    assert status == b"HTTP/1.1 403 Forbidden\r\n"


@pytest.mark.parametrize("path", sorted(PROBES))
async def test_the_kubelet_needs_no_certificate(
    authority: Authority, ours: tuple[Path, Path], path: str
) -> None:
    certificates = Certificates(*ours, authority.file)
    rule = HeadRule(probes=PROBES)
    async with listening(echo, HostPort("127.0.0.1", 0), QUICK, certificates, rule) as http_server:
        client = Client("127.0.0.1", http_server.port, tls=trusting(authority))
        assert await client.post(path.removeprefix("/"), b"", 20) == path.encode()
        await client.close()


async def test_a_client_with_a_strangers_certificate_gets_no_connection(
    authority: Authority, ours: tuple[Path, Path], tmp_path: Path
) -> None:
    stranger = Authority.made(tmp_path, "stranger").issue(tmp_path, "mallory")
    async with opened(echo, QUICK, Certificates(*ours, authority.file)) as http_server:
        with pytest.raises(CallFailed):
            await said_to(http_server.port, trusting(authority, stranger))


async def test_new_files_serve_new_connections_and_old_connections_go_on(
    authority: Authority, ours: tuple[Path, Path], tmp_path: Path
) -> None:
    certificates = Certificates(*ours, None, poll_s=0.01)
    async with opened(echo, QUICK, certificates) as http_server:
        old = Client("127.0.0.1", http_server.port, tls=trusting(authority))
        await old.post("x", b"", 20)
        renewed = Authority.made(tmp_path, "renewed")
        renewed.issue(tmp_path, "server")
        async with asyncio.timeout(60):
            while True:
                try:
                    await said_to(http_server.port, trusting(renewed))
                    break
                except CallFailed:
                    await asyncio.sleep(0.02)

        assert await old.post("x", b"", 20) == b"/x"
        assert old.dialled == 1
        await old.close()
        with pytest.raises(CallFailed):
            await said_to(http_server.port, trusting(authority))


async def test_a_pair_that_does_not_go_together_changes_nothing(
    authority: Authority, ours: tuple[Path, Path]
) -> None:
    certificates = Certificates(*ours, None, poll_s=0.01)
    async with opened(echo, QUICK, certificates) as http_server:
        ours[1].write_text("half a ke")
        await asyncio.sleep(0.1)

        assert await said_to(http_server.port, trusting(authority)) == b"/x"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["EXTENDER_TLS_CERT_FILE"], "one is of no use without the other"),
        (["EXTENDER_TLS_KEY_FILE"], "one is of no use without the other"),
        (["EXTENDER_TLS_CLIENT_CA_FILE"], "no TLS"),
        (["EXTENDER_TLS_CLIENT_NAMES"], "EXTENDER_TLS_CLIENT_CA_FILE: no TLS"),
    ],
)
def test_settings_that_make_no_sense_together_stop_the_start(
    ours: tuple[Path, Path], given: list[str], told: str
) -> None:
    source = Source(dict.fromkeys(given, str(ours[0])))
    source.load(ServerSettings)

    with pytest.raises(SettingsError, match=told):
        source.finish()
