"""Who may look: this machine, who has the token, whom a named proxy vouches for. No one else."""

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from joulie_bus.errors import SettingsError
from joulie_bus.settings import Source
from joulie_console.security import Gate, Guarded, host_of
from joulie_console.settings import ConsoleSettings

TOKEN = "a-token-of-some-length"
PROXY = {"CONSOLE_PROXY_HEADER": "X-Forwarded-User", "CONSOLE_PROXIES": "10.0.0.0/24, fd00::7"}


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
    guarded = Guarded(app, Gate(settings(**values)))
    return TestClient(guarded, base_url=f"http://{host}:9870", client=(peer, 1))


def test_by_default_it_listens_on_this_machine_alone() -> None:
    assert str(settings().addr) == "127.0.0.1:9870"


@pytest.mark.parametrize("where", [":9870", "0.0.0.0:9870", "10.1.2.3:80", "console.example:80"])
def test_beyond_this_machine_it_does_not_start_without_a_way_to_tell_who_looks(
    where: str,
) -> None:
    with pytest.raises(SettingsError, match="beyond this machine everybody could look"):
        settings(CONSOLE_ADDR=where)


@pytest.mark.parametrize("where", ["127.0.0.1:1", "localhost:1", "127.8.8.8:1", "[::1]:1"])
def test_on_this_machine_it_starts_without(where: str) -> None:
    assert settings(CONSOLE_ADDR=where).is_local


def test_with_a_token_or_named_proxies_it_starts_anywhere(token: dict[str, str]) -> None:
    assert not settings(CONSOLE_ADDR=":80", **token).is_local
    assert not settings(CONSOLE_ADDR=":80", **PROXY).is_local


@pytest.mark.parametrize("name", PROXY)
def test_a_header_without_proxies_or_proxies_without_a_header_are_a_mistake(name: str) -> None:
    with pytest.raises(SettingsError, match="from named proxies only"):
        settings(**{name: PROXY[name]})


@pytest.mark.parametrize("content", ["", "short", "line one of it\nand line two", "\x00" * 20])
def test_a_file_that_holds_no_token_is_a_mistake_that_does_not_show_it(
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
def test_only_the_token_opens(given: dict[str, str], status: int, token: dict[str, str]) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in given.items()]

    answer = client(**token).get("/v1/cluster", headers=raw)

    assert answer.status_code == status


def test_a_token_in_the_url_opens_nothing(token: dict[str, str]) -> None:
    answer = client(**token).get(f"/v1/cluster?token={TOKEN}&access_token={TOKEN}")

    assert (answer.status_code, answer.headers["www-authenticate"]) == (
        401,
        'Bearer realm="joulie"',
    )


def test_the_page_itself_comes_without_a_token_for_it_asks_for_it(token: dict[str, str]) -> None:
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
def test_a_user_is_believed_from_named_proxies_alone(peer: str, header: str, status: int) -> None:
    told = {"X-Forwarded-User": header, "X-Forwarded-For": "10.0.0.9"}

    assert client(peer, **PROXY).get("/v1/cluster", headers=told).status_code == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("console.lan", 200),
    ],
)
def test_without_a_token_a_name_that_somebody_points_here_is_not_answered(
    host: str, status: int
) -> None:
    asked = client(host=host, CONSOLE_HOSTS="console.lan")

    assert asked.get("/v1/cluster").status_code == status


@pytest.mark.parametrize(
    ("header", "name"),
    [("[::1]:9870", "::1"), ("[::1", "::1"), ("localhost", "localhost"), ("a:1", "a"), ("", "")],
)
def test_the_name_in_a_host_header(header: str, name: str) -> None:
    assert host_of(header) == name


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"])
def test_nothing_but_looking_is_possible(method: str) -> None:
    answer = client().request(method, "/v1/cluster", headers={"Origin": "https://evil.example"})

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert [name for name in answer.headers if name.startswith("access-control")] == []


def test_a_browser_is_told_to_be_careful_with_every_answer() -> None:
    headers = client().get("/").headers

    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in headers
