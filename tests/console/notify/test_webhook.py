"""Events at a real receiver: taken once, in order, and sent to no other address."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from aiohttp import web

from authority import Authority
from bus_kit import until
from http_server import Handler, serving
from joulie_bus.errors import SettingsError
from joulie_bus.runtime import metrics
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.settings import Source
from joulie_bus.runtime.tasks import background
from joulie_console.notify import webhook
from joulie_console.notify.settings import NotifySettings
from joulie_console.notify.webhook import Webhook
from joulie_console.views.occurrences import Event

pytestmark = pytest.mark.anyio
TOKEN = "the-token-of-the-receiver"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(webhook, "LONGEST_PAUSE_S", 0.05)


def event(name: str) -> Event:
    return Event(name, "io.joulie.test", {"specversion": "1.0", "id": name})


class Receiver:
    """Answers with `statuses` first, then takes everything."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []

    @property
    def taken(self) -> list[str]:
        return [body["id"] for _, body, _ in self.requests]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.statuses and (status := self.statuses.pop(0)) >= 300:
            return web.Response(status=status, text="no " * 1000)
        self.requests.append((request.method, await request.json(), dict(request.headers)))
        return web.Response(status=202)


def settings(url: str, **more: str) -> NotifySettings:
    return Source.of(NOTIFY_URL=url, **more).load(NotifySettings)


@asynccontextmanager
async def delivering(url: str, most: int = 100, **more: str) -> AsyncGenerator[Webhook, None]:
    made = Webhook(settings(url, **more), most)
    async with background(made.deliver(), "deliver"):
        yield made


def counted(result: str) -> float:
    return float(metrics.NOTIFICATIONS.labels(result=result)._value.get())


async def test_events_arrive_in_order_with_their_type_and_the_token() -> None:
    receiver = Receiver()
    async with (
        serving(receiver.answer) as url,
        delivering(f"{url}/hook", NOTIFY_TOKEN=TOKEN) as sender,
    ):
        for name in ("a", "b", "c"):
            sender.put(event(name))
        await until(lambda: len(receiver.requests) == 3)

    assert receiver.taken == ["a", "b", "c"]
    method, body, headers = receiver.requests[0]
    assert (method, body) == ("POST", {"specversion": "1.0", "id": "a"})
    assert headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    assert headers["Authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_an_event_is_posted_until_the_receiver_takes_it(status: int) -> None:
    receiver = Receiver(status, status)
    async with serving(receiver.answer) as url, delivering(url) as sender:
        sender.put(event("a"))
        sender.put(event("b"))
        await until(lambda: len(receiver.requests) == 2)

    assert receiver.taken == ["a", "b"]
    assert metrics.NOTIFY_FAILING._value.get() == 0


async def test_a_receiver_that_is_down_gets_the_events_when_it_is_up() -> None:
    receiver, port = Receiver(), free_port()
    async with delivering(f"http://127.0.0.1:{port}") as sender:
        with structlog.testing.capture_logs() as lines:
            sender.put(event("a"))
            await until(lambda: metrics.NOTIFY_FAILING._value.get() == 1)
            await until(lambda: any(line["event"] == "not_notified" for line in lines))
        async with serving(receiver.answer, port):
            await until(lambda: receiver.taken == ["a"])

    assert lines[0]["host"] == "127.0.0.1"


@pytest.mark.parametrize("status", [301, 307, 400, 404, 410])
async def test_an_event_that_is_refused_is_dropped_and_reported(status: int) -> None:
    receiver, before = Receiver(status), counted("dropped")
    async with serving(receiver.answer) as url, delivering(f"{url}/secret-path") as sender:
        with structlog.testing.capture_logs() as lines:
            sender.put(event("a"))
            sender.put(event("b"))
            await until(lambda: receiver.taken == ["b"])

    assert counted("dropped") == before + 1
    assert lines[0] == {
        "package": "notify",
        "event": "notification_dropped",
        "log_level": "error",
        "id": "a",
        "host": "127.0.0.1",
        "why": f"status {status}",
    }
    assert "secret-path" not in str(lines)


async def test_a_redirect_is_not_followed() -> None:
    elsewhere, sent = Receiver(), list[str]()
    async with serving(elsewhere.answer) as target:

        async def answer(_: web.Request) -> web.Response:
            sent.append("here")
            raise web.HTTPTemporaryRedirect(target)

        async with serving(answer) as url, delivering(url, NOTIFY_TOKEN=TOKEN) as sender:
            sender.put(event("a"))
            sender.put(event("b"))
            await until(lambda: len(sent) == 2)

    assert elsewhere.requests == []


async def test_of_more_events_than_are_kept_the_oldest_go() -> None:
    receiver, port, before = Receiver(), free_port(), counted("dropped")
    async with delivering(f"http://127.0.0.1:{port}", most=3) as sender:
        for number in range(10):
            sender.put(event(str(number)))
        assert metrics.NOTIFICATIONS_WAITING._value.get() == 3
        async with serving(receiver.answer, port):
            await until(lambda: len(receiver.requests) == 3)

    assert receiver.taken == ["7", "8", "9"]
    assert counted("dropped") == before + 7


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"x" * 4096)


def silent(has_ended: asyncio.Event) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        await has_ended.wait()
        return web.Response()

    return answer


async def test_an_answer_without_an_end_is_not_read() -> None:
    before = counted("sent")
    async with serving(endless) as url, delivering(url) as sender:
        sender.put(event("a"))
        sender.put(event("b"))
        await until(lambda: counted("sent") == before + 2)


async def test_a_receiver_that_does_not_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook, "TIMEOUT_S", 0.1)
    has_ended = asyncio.Event()
    async with serving(silent(has_ended)) as url, delivering(url) as sender:
        with structlog.testing.capture_logs() as lines:
            sender.put(event("a"))
            await until(lambda: len(lines) >= 2)
        has_ended.set()

    assert {line["why"] for line in lines} == {"no answer in time"}


async def test_the_certificate_is_checked_with_the_authority_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Receiver()
    ours, other = (Authority.made(tmp_path, name) for name in ("ours", "other"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*ours.issue(tmp_path, "receiver"))
    async with serving(receiver.answer, tls=tls) as url:
        with structlog.testing.capture_logs() as lines:
            monkeypatch.setenv("SSL_CERT_FILE", str(other.file))
            async with delivering(url) as sender:
                sender.put(event("a"))
                await until(lambda: bool(lines))
        monkeypatch.setenv("SSL_CERT_FILE", str(ours.file))
        async with delivering(url) as sender:
            sender.put(event("b"))
            await until(lambda: bool(receiver.taken))

    assert "certificate verify failed" in lines[0]["why"]
    assert receiver.taken == ["b"]


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("http://hooks.example/x", {}),
        ("hooks.example", {}),
        ("https://", {}),
        ("ftp://hooks.example", {}),
        ("https://user:password@hooks.example", {}),
        ("https://hooks.example:99999", {}),
    ],
    ids=str,
)
def test_a_webhook_that_cannot_be_used_is_refused_at_the_start(
    url: str, more: dict[str, str]
) -> None:
    source = Source.of(NOTIFY_URL=url, **more)
    source.load(NotifySettings)

    with pytest.raises(SettingsError, match="NOTIFY_") as refused:
        source.finish()

    assert "user:password" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("", {}),
        ("http://127.0.0.1:8080/x", {}),
        ("https://hooks.example/x", {}),
        ("http://receiver.monitoring.svc/x", {"NOTIFY_PLAIN": "true"}),
    ],
    ids=str,
)
def test_a_webhook_needs_tls_beyond_this_machine(url: str, more: dict[str, str]) -> None:
    source = Source.of(NOTIFY_URL=url, **more)
    loaded = source.load(NotifySettings)
    source.finish()

    assert loaded.url == url
