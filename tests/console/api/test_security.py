"""Access control: loopback, the token, or a trusted proxy."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest
from starlette._utils import get_route_path
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from joulie_answers.schema.requests import TOKEN_HEADER
from joulie_answers.schema.responses import Problem
from joulie_bus.errors import SettingsError
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.settings import HostPort, Source
from joulie_console.api import http_limits
from joulie_console.api.security import AccessControl, SecurityMiddleware, route_path
from joulie_console.service import listening
from joulie_console.settings import ConsoleSettings

TOKEN = "a-token-of-some-length"
PROXY = {"CONSOLE_PROXIES": "X-Forwarded-User=10.0.0.0/24, fd00::7"}


@pytest.fixture
def token(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return {"CONSOLE_TOKEN_FILE": str(path)}


def settings(**values: str) -> ConsoleSettings:
    source = Source.of(**values)
    loaded = source.load(ConsoleSettings)
    source.finish()
    return loaded


def client(peer: str = "127.0.0.1", host: str = "localhost", **values: str) -> TestClient:
    async def answer(_: Request) -> Response:
        return PlainTextResponse("seen")

    app = Starlette(routes=[Route("/v1/cluster", answer), Route("/", answer)])
    guarded = SecurityMiddleware(app, AccessControl(settings(**values)))
    return TestClient(guarded, base_url=f"http://{host}:9870", client=(peer, 1))


def test_by_default_it_listens_on_loopback_only() -> None:
    assert str(settings().addr) == "127.0.0.1:9870"


@pytest.mark.parametrize("where", [":9870", "0.0.0.0:9870", "10.1.2.3:80", "console.example:80"])
def test_beyond_loopback_it_does_not_start_without_authentication(
    where: str,
) -> None:
    with pytest.raises(SettingsError, match="beyond loopback every client could read"):
        settings(CONSOLE_ADDR=where)


@pytest.mark.parametrize("where", ["127.0.0.1:1", "localhost:1", "127.8.8.8:1", "[::1]:1"])
def test_on_loopback_it_starts_without_authentication(where: str) -> None:
    assert settings(CONSOLE_ADDR=where).is_local


def test_with_a_token_or_trusted_proxies_it_starts_on_any_address(token: dict[str, str]) -> None:
    assert not settings(CONSOLE_ADDR=":80", **token).is_local
    assert not settings(CONSOLE_ADDR=":80", **PROXY).is_local


@pytest.mark.parametrize(
    "text", ["X-Forwarded-User", "X-Forwarded-User=", "10.0.0.0/24", "=10.0.0.7"]
)
def test_proxies_require_both_a_header_and_addresses(text: str) -> None:
    with pytest.raises(SettingsError, match="CONSOLE_PROXIES"):
        settings(CONSOLE_PROXIES=text)


@pytest.mark.parametrize("content", ["", "short", "line one of it\nand line two", "\x00" * 20])
def test_an_invalid_token_file_is_an_error_without_its_content(
    content: str, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text(content)

    with pytest.raises(SettingsError, match="one line of at least 16") as caught:
        settings(CONSOLE_TOKEN_FILE=str(path))
    assert not content or content not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
        ({"Authorization": f"bearer {TOKEN}"}, 200),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": f"Bearer {TOKEN[:-1]}"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Bearer \u00e9".encode("latin-1").decode("latin-1")}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"X-Forwarded-User": "root"}, 401),
        ({"Cookie": f"token={TOKEN}"}, 401),
        ({}, 401),
    ],
    ids=str,
)
def test_only_the_token_in_the_header_gives_access(
    given: dict[str, str], status: int, token: dict[str, str]
) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in given.items()]

    answer = client(**token).get("/v1/cluster", headers=raw)

    assert answer.status_code == status


@pytest.mark.parametrize(("given", "status"), [(TOKEN, 200), (TOKEN[:-1], 401), ("", 401)])
def test_the_token_may_come_in_a_header_that_the_api_server_forwards(
    given: str, status: int, token: dict[str, str]
) -> None:
    reply = client(**token).get("/v1/cluster", headers={TOKEN_HEADER: given})

    assert reply.status_code == status


def test_a_token_in_the_url_gives_no_access(token: dict[str, str]) -> None:
    answer = client(**token).get(f"/v1/cluster?token={TOKEN}&access_token={TOKEN}")

    assert (answer.status_code, answer.headers["www-authenticate"]) == (
        401,
        'Bearer realm="joulie"',
    )


@pytest.mark.anyio
async def test_a_refusal_over_http_says_unauthorized_and_what_to_send(
    token: dict[str, str],
) -> None:
    async with serving(token) as port:
        head, _, body = (await exchange(port, request_bytes("/v1/cluster"))).partition(b"\r\n\r\n")

    problem = msgspec.json.decode(body, type=Problem)
    assert head.startswith(b"HTTP/1.1 401 Unauthorized")
    assert (problem.title, problem.status) == ("Unauthorized", 401)
    assert "Send the header `Authorization: Bearer TOKEN`" in problem.detail
    assert TOKEN not in problem.detail


def test_a_refusal_names_the_proxy_where_only_a_proxy_gives_access() -> None:
    answer = client(**PROXY).get("/v1/cluster")

    assert answer.json()["title"] == "Unauthorized"
    assert answer.json()["detail"] == (
        "Send the request through a proxy of CONSOLE_PROXIES, which sets the header "
        "x-forwarded-user."
    )
    assert "www-authenticate" not in answer.headers


def test_the_page_is_served_without_a_token(token: dict[str, str]) -> None:
    assert client(**token).get("/").status_code == 200


@pytest.mark.parametrize(
    ("peer", "header", "status"),
    [
        ("10.0.0.9", "ann@example.org", 200),
        ("::ffff:10.0.0.9", "ann@example.org", 200),
        ("fd00::7", "ann@example.org", 200),
        ("10.0.0.9", "", 401),
        ("10.0.1.9", "ann@example.org", 401),
        ("127.0.0.1", "ann@example.org", 401),
        ("a pipe", "ann@example.org", 401),
    ],
)
def test_the_user_header_counts_only_from_trusted_proxies(
    peer: str, header: str, status: int
) -> None:
    headers = {"X-Forwarded-User": header, "X-Forwarded-For": "10.0.0.9"}

    assert client(peer, **PROXY).get("/v1/cluster", headers=headers).status_code == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
    ],
)
def test_without_a_token_a_foreign_host_name_is_refused(host: str, status: int) -> None:
    browser = client(host=host)

    assert browser.get("/v1/cluster").status_code == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"])
def test_only_get_and_head_are_allowed(method: str) -> None:
    answer = client().request(method, "/v1/cluster", headers={"Origin": "https://evil.example"})

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert [name for name in answer.headers if name.startswith("access-control")] == []


def test_every_response_has_security_headers() -> None:
    headers = client().get("/").headers

    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in headers


# --- over a real socket -----------------------------------------------------------------------

PATIENCE_S = 120.0
NOTHING: Mapping[str, str] = MappingProxyType({})
PASS = f"Authorization: Bearer {TOKEN}\r\n"


async def shown(request: Request) -> Response:
    return PlainTextResponse(f"secret of {request.scope['path']}")


@contextlib.asynccontextmanager
async def serving(
    values: Mapping[str, str] = NOTHING, most: int = 100
) -> AsyncGenerator[int, None]:
    """Serves a page, and data under /v1/ and elsewhere, behind the access control."""
    paths = ("/", "/healthz", "/v1/cluster", "/v1/nodes/{name:path}", "/other/{name:path}")
    routes = [Route(path, shown) for path in paths]
    access = Middleware(SecurityMiddleware, access=AccessControl(settings(**values)))
    app = Starlette(routes=routes, middleware=[access])
    app.router.redirect_slashes = False
    at = HostPort("127.0.0.1", free_port())
    async with listening(app, at, most):
        yield at.port


async def exchange(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        return await asyncio.wait_for(reader.read(), PATIENCE_S)
    finally:
        writer.close()


def request_bytes(target: str, host: str = "localhost", more: str = "") -> bytes:
    head = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n"
    return head.encode("latin-1")


TARGETS = [
    "/v1/cluster",
    "/v1%2Fcluster",
    "/%761/cluster",
    "//v1/cluster",
    "/./v1/cluster",
    "/x/../v1/cluster",
    "/x/%2e%2e/v1/cluster",
    "/healthz/../v1/cluster",
    "/healthz%2f..%2fv1/cluster",
    "/v1/nodes/%2e%2e%2f%2e%2e%2fhealthz",
    "/v1/cluster?/healthz",
    "/v1/cluster#/healthz",
    "/v1/cluster;/healthz",
    "/V1/cluster",
    "/v1/cluster/",
    "/other/data",
    "http://localhost/v1/cluster",
    "http://x/healthz/../v1/cluster",
    "http://evil.example/other/x",
]


@pytest.mark.anyio
@pytest.mark.parametrize("target", TARGETS)
async def test_no_spelling_of_a_path_bypasses_the_token(target: str, token: dict[str, str]) -> None:
    async with serving(token) as port:
        without = await exchange(port, request_bytes(target))

    assert b"secret" not in without
    assert without.split()[1] in (b"401", b"400")


HOSTS = ["x/healthz?", "x/?", "localhost/healthz#", "localhost:80/healthz?", "@/healthz?", ""]


@pytest.mark.anyio
@pytest.mark.parametrize("host", HOSTS)
async def test_no_host_header_bypasses_the_token(host: str, token: dict[str, str]) -> None:
    """A URL that is built from the Host header has another path than the request."""
    async with serving(token) as port:
        assert b" 401 " in await exchange(port, request_bytes("/v1/cluster", host))


@pytest.mark.parametrize("path", ["/v1/cluster", "//v1/cluster", "/", "/healthz/v1", "/v1"])
@pytest.mark.parametrize("host", HOSTS)
def test_access_control_uses_the_path_that_the_router_matches(
    path: str, host: str, token: dict[str, str]
) -> None:
    """In every version of Starlette, which parses `request.url` differently."""
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(b"host", host.encode())],
    }

    assert (AccessControl(settings(**token))(Request(scope)) is None) == (path == "/")


@pytest.mark.parametrize(
    ("path", "root", "found"),
    [
        ("/joulie/v1/cluster", "/joulie", "/v1/cluster"),
        ("/joulie", "/joulie", ""),
        ("/joulies/healthz", "/joulie", "/joulies/healthz"),
        ("/healthz", "/joulie", "/healthz"),
        ("/v1/x", "", "/v1/x"),
    ],
)
def test_the_root_path_is_not_part_of_the_route(path: str, root: str, found: str) -> None:
    assert route_path({"path": path, "root_path": root}) == found
    assert get_route_path({"path": path, "root_path": root}) == found  # as Starlette finds it


@pytest.mark.anyio
async def test_with_the_token_a_path_is_routed_as_sent(token: dict[str, str]) -> None:
    async with serving(token) as port:
        answers = [
            await exchange(port, request_bytes(target, more=PASS))
            for target in ("/v1/cluster", "/v1/nodes/a%2Fb", "http://localhost/v1/cluster")
        ]

    assert [answer.partition(b"secret of ")[2] for answer in answers] == [
        *(b"/v1/cluster", b"/v1/nodes/a/b"),
        b"/v1/cluster",
    ]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Host: evil.example", b"421"),
        ("Host: localhost\r\nHost: evil.example", b"400"),
        ("Host: evil.example\r\nHost: localhost", b"400"),
        ("Accept: */*", b"400"),
        ("Host: localhost@evil.example", b"400"),
    ],
)
async def test_a_host_of_another_site_gets_no_data(head: str, status: bytes) -> None:
    async with serving() as port:
        read_events = await exchange(port, f"GET /v1/cluster HTTP/1.0\r\n{head}\r\n\r\n".encode())

    assert read_events.split()[1] == status
    assert b"secret" not in read_events


SLOW = {
    "says nothing": b"",
    "a beginning": b"GET /v1/cl",
    "a head": b"GET / HTTP/1.1\r\nHost: localhost\r\nA: ",
    "empty lines": b"\r\n",
    "a body": b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx",
}


@pytest.mark.anyio
@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
async def test_an_incomplete_request_times_out(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "REQUEST_S", 0.3)
    async with serving() as port:
        read_events = await exchange(port, sent)

    assert read_events.startswith(b"HTTP/1.1 200" if sent.endswith(b"x") else b"HTTP/1.1 408")


@pytest.mark.anyio
async def test_a_large_head_is_refused() -> None:
    async with serving() as port:
        read_events = await exchange(port, b"GET / HTTP/1.1\r\nA: " + b"x" * http_limits.HEAD_BYTES)

    assert read_events.startswith(b"HTTP/1.1 431")


@pytest.mark.anyio
async def test_connections_beyond_the_limit_are_closed() -> None:
    async with serving(most=3) as port, contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
        read_events = await exchange(port, b"")

    assert read_events.startswith(b"HTTP/1.1 503")
