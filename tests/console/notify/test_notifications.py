"""A console whose webhook hears of a cluster in trouble, and of a log that was changed."""

import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web

from bus_kit import ask, hardware, node_seen, plan_made, power, until
from console_kit import ConsoleHarness
from http_server import serving
from joulie_bus.events import CapsApplied, CapsRefused
from joulie_console.notify import notifier
from joulie_console.views import occurrences
from joulie_console.views.conditions import KINDS
from projections_kit import tamper

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]
Events = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "LOOK_S", 0.05)
    monkeypatch.setattr(notifier, "CHECK_S", 0.05)
    monkeypatch.setattr(occurrences, "ENDS_S", 0.5)
    monkeypatch.setattr(occurrences, "LASTS_S", dict.fromkeys(KINDS, 0))


@asynccontextmanager
async def notified(
    new_harness: NewHarness,
) -> AsyncGenerator[tuple[ConsoleHarness, Events], None]:
    """A console, and what its webhook has received."""
    received: Events = []

    async def answer(request: web.Request) -> web.Response:
        received.append(await request.json())
        return web.Response()

    async with serving(answer) as url, new_harness(NOTIFY_URL=url) as harness:
        yield harness, received


def of(received: Events, kind: str) -> Events:
    return [each for each in received if each["type"] == kind]


async def test_refused_caps_begin_and_end(new_harness: NewHarness) -> None:
    async with notified(new_harness) as (harness, received):
        await harness.publish(node_seen("n1"), hardware("n1"), power("n1", 100), plan_made())
        await harness.publish(CapsRefused(node="n1", because="no permission"))
        await until(lambda: bool(of(received, "io.joulie.caps.refused.begun")))
        await harness.publish(CapsApplied(node="n1"))
        await until(lambda: bool(of(received, "io.joulie.caps.refused.ended")))

    [begun] = of(received, "io.joulie.caps.refused.begun")
    assert (begun["subject"], begun["source"]) == ("n1", "/joulie/test")
    assert "no permission" in begun["data"]["text"]


async def test_a_silent_operator_is_reported_once(new_harness: NewHarness) -> None:
    async with notified(new_harness) as (harness, received):
        await harness.publish(node_seen("n1"))  # and no plan was ever made
        kind = "io.joulie.operator.silent.begun"
        await until(lambda: bool(of(received, kind)))
        await harness.publish(plan_made())
        await until(lambda: bool(of(received, "io.joulie.operator.silent.ended")))

    assert len(of(received, kind)) == 1


async def signed_head(harness: ConsoleHarness) -> int:
    """The entry of a head that is in the database and at the broker."""
    await harness.publish(node_seen("n1"), hardware("n1"), power("n1", 100))
    await harness.decide(ask("p1"))
    heads: dict[str, Any] = {}
    async with httpx2.AsyncClient(base_url=harness.url) as client:
        while heads.get("unsigned") != 0 or not heads["items"]:
            answer = await client.get("/v1/heads")
            heads = answer.json() if answer.status_code == 200 else heads
    return int(heads["items"][0]["entry"])


def has_changed(file: Path, statement: str, entry: int) -> bool:
    """False while the projector writes."""
    try:
        tamper(file, statement, entry)
    except sqlite3.OperationalError:
        return False
    return True


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE decision SET hash = x'00' WHERE pos = ?", "is not what its signed head says"),
        ("DELETE FROM decision WHERE pos >= ?", "Was the database set back?"),
    ],
)
@pytest.mark.long
async def test_a_changed_log_is_reported(
    new_harness: NewHarness, tmp_path: Path, statement: str, says: str
) -> None:
    async with notified(new_harness) as (harness, received):
        entry = await signed_head(harness)
        assert of(received, "io.joulie.log.invalid.begun") == []
        await until(lambda: has_changed(tmp_path / "joulie.db", statement, entry))
        await until(lambda: bool(of(received, "io.joulie.log.invalid.begun")))

    [begun] = of(received, "io.joulie.log.invalid.begun")
    assert begun["id"] == f"log.invalid/decisions/{entry}/begun"
    assert says in begun["data"]["text"]


@pytest.mark.long
async def test_an_older_entry_that_was_changed_is_reported(
    new_harness: NewHarness, tmp_path: Path
) -> None:
    async with notified(new_harness) as (harness, received):
        entry = await signed_head(harness)
        statement = "UPDATE decision SET body = x'c0' WHERE pos = ?"
        await until(lambda: has_changed(tmp_path / "joulie.db", statement, entry - 1))
        await until(lambda: bool(of(received, "io.joulie.log.invalid.begun")))

    [begun] = of(received, "io.joulie.log.invalid.begun")
    assert f"not valid at entry {entry - 1}" in begun["data"]["text"]
