"""A past of each test's own."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from joulie_audit.testing import LogMaker, Past, small_past
from joulie_projections import database
from joulie_projections.decisions import DecisionLog
from joulie_projections.heads import Signer
from joulie_projections.store import Store
from joulie_projections.testing import Postgres


@pytest.fixture
def past(writer: Engine, database_file: Path, tmp_path: Path) -> Past:
    """Empty."""
    signer = Signer.of(tmp_path / "head.key")
    return Past(LogMaker(Store(writer), DecisionLog(writer), signer), database_file)


@pytest.fixture
async def small(past: Past) -> Past:
    """Four nodes, a plan, four pods: nine entries."""
    await small_past(past)
    return past


@pytest.fixture(params=["database_file", "postgres"], ids=["sqlite", "postgres"])
async def either(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Past, None]:
    """The small past, in each kind of database."""
    found: Path | Postgres = request.getfixturevalue(request.param)
    place = found.migrated() if isinstance(found, Postgres) else found
    engine = database.writer(place)
    signer = Signer.of(tmp_path / "head.key")
    made = Past(LogMaker(Store(engine), DecisionLog(engine), signer), place)
    await small_past(made)
    yield made
    engine.dispose()
