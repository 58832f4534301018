"""Fixtures: projectors and views on one database and one broker."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import pytest
from sqlalchemy import Engine

from bus_kit import CLUSTER, Senders
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import AnyEvent
from joulie_bus.jetstream.log import JetStreamLog
from joulie_projections.decision_log.heads import Signer
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.view.view import View
from one_broker import anyio_backend, emptied, server

__all__ = ["anyio_backend", "server"]  # fixtures
Projecting = Callable[..., AbstractAsyncContextManager[asyncio.Task[None]]]
Viewing = Callable[[], AbstractAsyncContextManager[View]]
Publish = Callable[..., Awaitable[None]]


class Migrating(Protocol):
    def migrated(self) -> str: ...


@pytest.fixture(params=["database_file", "postgres"], ids=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    """A database with the current schema; each test runs on SQLite and on PostgreSQL."""
    found: Path | Migrating = request.getfixturevalue(request.param)
    return found if isinstance(found, Path) else found.migrated()


@pytest.fixture
def writer(place: Place) -> Generator[Engine, None, None]:
    engine = database.writer(place)
    yield engine
    engine.dispose()


@pytest.fixture
async def broker(server: Embedded) -> Embedded:
    return await emptied(server)


@pytest.fixture
def projecting(bus: JetStreamLog, place: Place, tmp_path: Path) -> Projecting:
    """Runs a projector with small batches and a short lease; the test checks how the task ends."""
    signer = Signer.of(tmp_path / "signing.key")

    @contextlib.asynccontextmanager
    async def run(**changed: Any) -> AsyncGenerator[asyncio.Task[None], None]:
        options: dict[str, Any] = {"batch": 7, "lease_s": 0.3, **changed}
        settings = ProjectorSettings(**options)
        engine = database.writer(place)
        task = asyncio.create_task(
            Projector(bus, CLUSTER, engine, signer, settings).run(), name="projector"
        )
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])
            engine.dispose()

    return run


@pytest.fixture
def viewing(bus: JetStreamLog, place: Place) -> Viewing:
    @contextlib.asynccontextmanager
    async def run() -> AsyncGenerator[View, None]:
        engine = database.reader(place)
        try:
            async with View.open(bus, engine, CLUSTER) as view:
                yield view
        finally:
            engine.dispose()

    return run


@pytest.fixture
def publish(bus: JetStreamLog) -> Publish:
    """Publishes events; returns when they are stored."""
    senders = Senders()

    async def stored(*events: AnyEvent) -> None:
        await bus.publish([senders.stamp(event) for event in events])

    return stored
