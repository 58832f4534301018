"""One small past that many tests only look at, and empty stages for those that change it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx2
import pytest

from chromium import Chromium, Page, program
from joulie_bus.broker.embedded import Embedded
from joulie_bus.testing import (
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
    running_broker,
    until,
)
from joulie_console.testing import Constants, Stage, staging
from one_broker import anyio_backend, emptied, server

__all__ = ["anyio_backend", "server"]  # fixtures
Staging = Callable[..., AbstractAsyncContextManager[Stage]]


@pytest.fixture(scope="module")
async def past(
    server: Embedded, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Stage, None]:
    """Three nodes, four pods, a card, a plan, and answers about two of the pods."""
    async with staging(server, tmp_path_factory.mktemp("past")) as stage:
        await stage.tell(
            node_seen("n1", cores=96, rack="r1"),
            node_seen("n2", cores=96, rack="r2", cooling_zone="z2"),
            node_seen("n3", cores=48, gpus=8, rack="r2"),
            hardware("n1", watts=600),
            hardware("n2", watts=600),
            hardware("n3", cores=48, watts=400, gpus=8),
            power("n1", 150),
            power("n2", 300),
        )
        await stage.tell(
            plan_made("p8"), performance("n1"), eco("n2"), caps("n2", cpu=60), draining("n3")
        )
        await stage.tell(
            pending("waits"),
            card("g1", "n3", used_mb=40_000),
            polled(ambient_c=24.5, it_w=1000),
        )
        await stage.place(ask("runs"))
        await stage.place(ask("heavy", performance=True, cores=8))
        await stage.tell(
            bound("runs", "n1"),
            bound("heavy", "n3", performance=True),
            claim("g1", "heavy", node="n3"),
        )
        stage.entries += 2  # what became of the two
        async with httpx2.AsyncClient(base_url=stage.url) as client:
            await _settled(client, stage)
        yield stage


async def _settled(client: httpx2.AsyncClient, stage: Stage) -> None:
    """The console shows what the view holds."""
    seen: dict[str, int] = {}

    async def look() -> bool:
        answer = await client.get("/v1/cluster")
        if answer.status_code == 200:
            seen.update(answer.json())
        return (seen.get("position"), seen.get("entries")) == (stage.view.position, stage.entries)

    for _ in range(500):
        if await look():
            return
        await _breath()
    raise AssertionError(f"the console does not get there: {seen}")


async def _breath() -> None:
    tick = iter((False, True))
    await until(lambda: next(tick))


@pytest.fixture
async def browser(past: Stage) -> AsyncGenerator[httpx2.AsyncClient, None]:
    async with httpx2.AsyncClient(base_url=past.url) as client:
        yield client


@pytest.fixture(scope="module")
async def spare(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Embedded, None]:
    """Another one, whose streams may be thrown away under nobody's feet."""
    async with running_broker(tmp_path_factory.mktemp("spare")) as running:
        yield running


@pytest.fixture
async def empty_streams(spare: Embedded) -> Embedded:
    return await emptied(spare)


@pytest.fixture
def stage_of(empty_streams: Embedded, tmp_path: Path) -> Staging:
    """`async with stage_of(CONSOLE_...="...") as stage`: an empty cluster, a console of its own."""

    def make(
        constants: Constants | None = None, **settings: str
    ) -> AbstractAsyncContextManager[Stage]:
        return staging(empty_streams, tmp_path, constants, **settings)

    return make


@pytest.fixture(scope="module")
async def chromium(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Chromium, None]:
    if program() is None:
        pytest.skip("wants Chromium: apt-get install chromium, or name one by CHROMIUM")
    async with Chromium.running(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
async def page(chromium: Chromium) -> AsyncGenerator[Page, None]:
    async with chromium.page() as opened:
        await opened.resize(1440, 900)
        yield opened
