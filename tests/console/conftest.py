"""A shared scenario for tests that only read, and empty consoles for tests that write."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import BrowserContext, Page

from browser import complaints_of, new_context, program, running_chromium, used_again
from bus_kit import (
    ask,
    bound,
    caps,
    card,
    claim,
    draining,
    eco,
    hardware,
    node_seen,
    pending,
    performance,
    plan_made,
    polled,
    power,
    records,
    running_broker,
    until,
)
from bus_kit.clock import NOON
from console_kit import ConsoleHarness, Constants, console_harness
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import AnyEvent
from joulie_projections.energy.saved import LedgerState
from one_broker import anyio_backend, emptied, server

__all__ = ["anyio_backend", "server"]  # fixtures
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]


@pytest.fixture(scope="module")
async def scenario(
    server: Embedded, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[ConsoleHarness, None]:
    """Three nodes, four pods, a card, a plan, and decisions about two of the pods."""
    async with console_harness(server, tmp_path_factory.mktemp("past")) as harness:
        await harness.publish(
            node_seen("n1", cores=96, rack="r1"),
            node_seen("n2", cores=96, rack="r2", cooling_zone="z2"),
            node_seen("n3", cores=48, gpus=8, rack="r2"),
            hardware("n1", watts=600),
            hardware("n2", watts=600),
            hardware("n3", cores=48, watts=400, gpus=8),
            power("n1", 150),
            power("n2", 300),
        )
        await harness.publish(
            plan_made("p8"), performance("n1"), eco("n2"), caps("n2", cpu=60), draining("n3")
        )
        await harness.publish(
            pending("waits"),
            card("g1", "n3", used_mb=40_000),
            polled(ambient_c=24.5, it_w=1000),
        )
        await harness.decide(ask("runs"))
        await harness.decide(ask("heavy", performance=True, cores=8))
        await harness.publish(
            bound("runs", "n1"),
            bound("heavy", "n3", performance=True),
            claim("g1", "heavy", node="n3"),
        )
        harness.entries += 2  # the outcomes of the two pods
        harness.fill_ledger(an_hour())
        async with httpx2.AsyncClient(base_url=harness.url) as client:
            await _settled(client, harness)
        yield harness


def an_hour() -> LedgerState:
    """A node at 100 W and one at 300 W with a pod, up to now."""
    state = LedgerState()
    start_s = (time.time_ns() - NOON) / 1e9 - 3600
    readings = [power("n1", 100), power("n2", 300)] * 60
    facts: list[AnyEvent] = [node_seen("n1"), node_seen("n2"), bound("runs", "n2"), *readings]
    state.fold(records(*facts, start_s=start_s, step_s=29), ())
    return state


@pytest.fixture
def hour_of_energy() -> LedgerState:
    return an_hour()


async def _settled(client: httpx2.AsyncClient, harness: ConsoleHarness) -> None:
    """Waits until the console shows what the view has."""
    seen: dict[str, int] = {}

    async def look() -> bool:
        answer = await client.get("/v1/cluster")
        if answer.status_code == 200:
            seen.update(answer.json())
        return (seen.get("position"), seen.get("entries")) == (
            harness.view.position,
            harness.entries,
        )

    for _ in range(500):
        if await look():
            return
        await _breath()
    raise AssertionError(f"the console does not catch up: {seen}")


async def _breath() -> None:
    tick = iter((False, True))
    await until(lambda: next(tick))


@pytest.fixture
async def browser(scenario: ConsoleHarness) -> AsyncGenerator[httpx2.AsyncClient, None]:
    async with httpx2.AsyncClient(base_url=scenario.url) as client:
        yield client


@pytest.fixture(scope="module")
async def spare_broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Embedded, None]:
    """A second broker; its streams are deleted between tests."""
    async with running_broker(tmp_path_factory.mktemp("spare")) as running:
        yield running


@pytest.fixture
async def empty_streams(spare_broker: Embedded) -> Embedded:
    return await emptied(spare_broker)


@pytest.fixture
def new_harness(empty_streams: Embedded, tmp_path: Path) -> NewHarness:
    """`async with new_harness(...) as harness`: a console of an empty cluster."""

    def make(
        constants: Constants | None = None, **settings: str
    ) -> AbstractAsyncContextManager[ConsoleHarness]:
        return console_harness(empty_streams, tmp_path, constants, **settings)

    return make


@pytest.fixture(scope="module")
async def chromium() -> AsyncGenerator[BrowserContext, None]:
    if program() is None:
        pytest.skip("requires Chromium: apt-get install chromium, or set CHROMIUM")
    async with running_chromium() as running, new_context(running) as context:
        yield context


@pytest.fixture(scope="module")
async def tab(chromium: BrowserContext) -> Page:
    return await chromium.new_page()


@pytest.fixture
async def page(tab: Page) -> AsyncGenerator[Page, None]:
    async with used_again(tab) as opened:
        yield opened


@pytest.fixture
def complaints(page: Page) -> list[str]:
    """What the browser reports about the page; empty for a sound one."""
    return complaints_of(page)
