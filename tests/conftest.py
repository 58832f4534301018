"""What many tests share: a real broker, a migrated database, both gone afterwards."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from sqlalchemy import Engine

import joulie_migrations
from joulie_bus.broker.embedded import Embedded
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime import logging
from joulie_bus.testing import connected, running_broker
from joulie_projections.store import database
from joulie_projections.testing import Postgres, PostgresMissing


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Before each test: some of them configure the log for the whole process."""
    logging.configure("warning", "console", "test")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncGenerator[Embedded, None]:
    async with running_broker(tmp_path / "broker") as running:
        yield running


@pytest.fixture
async def connection(broker: Embedded) -> AsyncGenerator[Connection, None]:
    async with connected(broker) as opened:
        yield opened


@pytest.fixture
async def bus(connection: Connection) -> AsyncGenerator[JetStreamLog, None]:
    async with JetStreamLog.over(connection) as opened:
        yield opened


@pytest.fixture
def database_file(tmp_path: Path) -> Path:
    """A SQLite file at today's schema."""
    path = tmp_path / "joulie.db"
    engine = database.migrator(path)
    joulie_migrations.upgrade(engine)
    engine.dispose()
    return path


@pytest.fixture
def writer(database_file: Path) -> Generator[Engine, None, None]:
    engine = database.writer(database_file)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def postgres() -> Generator[Postgres, None, None]:
    """One server for all; every test gets a database of its own in it."""
    try:
        with Postgres.running() as server:
            yield server
    except PostgresMissing as missing:
        pytest.skip(f"wants {missing}")
