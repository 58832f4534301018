"""A past of each test's own."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from joulie_audit.testing import LogMaker, Past, small_past, small_past_in
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store
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
    async with small_past_in(place_of(request), tmp_path) as made:
        yield made


@pytest.fixture(params=["database_file", "postgres"], ids=["sqlite", "postgres"])
async def older(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Past, None]:
    """The same, logged before entries had headers."""
    async with small_past_in(place_of(request), tmp_path, headers=False) as made:
        yield made


def place_of(request: pytest.FixtureRequest) -> Place:
    found: Path | Postgres = request.getfixturevalue(request.param)
    return found.migrated() if isinstance(found, Postgres) else found
