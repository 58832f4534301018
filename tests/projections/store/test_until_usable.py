"""Components beside a database that does not answer yet."""

import asyncio
from pathlib import Path

import pytest

from bus_kit import until
from joulie_bus.errors import DatabaseUnreachable, SchemaMismatch
from joulie_bus.runtime import metrics
from joulie_projections.store import database
from joulie_projections.store.retrying import until_usable
from projections_kit import Postgres

pytestmark = pytest.mark.anyio


def retries() -> float:
    return float(metrics.DATABASE_RETRIES._value.get())


@pytest.mark.slow
async def test_a_component_that_starts_before_the_server_waits_for_it() -> None:
    with Postgres.running() as server:
        engine = database.writer(server.migrated())
        server.stop()
        before = retries()
        waiting = asyncio.create_task(until_usable(engine))
        await until(lambda: retries() > before)
        assert not waiting.done()
        server.start()
        await waiting
        engine.dispose()


async def test_a_file_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    engine = database.writer(tmp_path / "missing/joulie.db")
    with pytest.raises(DatabaseUnreachable):
        await until_usable(engine)
    engine.dispose()


async def test_a_database_without_the_schema_is_an_error_at_once(tmp_path: Path) -> None:
    engine = database.writer(tmp_path / "joulie.db")
    with pytest.raises(SchemaMismatch):
        await until_usable(engine)
    engine.dispose()
