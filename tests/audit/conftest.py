"""Recorded logs, one for each test."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from audit_kit import LogBuilder, RecordedLog, record_small_log, small_log_in
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store
from projections_kit import Postgres


@pytest.fixture
def recorded(writer: Engine, database_file: Path, tmp_path: Path) -> RecordedLog:
    """An empty log."""
    signer = Signer.of(tmp_path / "head.key")
    return RecordedLog(LogBuilder(Store(writer), DecisionLog(writer), signer), database_file)


@pytest.fixture
async def small_log(recorded: RecordedLog) -> RecordedLog:
    """Four nodes, a plan, four pods: nine entries."""
    await record_small_log(recorded)
    return recorded


@pytest.fixture(params=["database_file", "postgres"], ids=["sqlite", "postgres"])
async def any_database(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[RecordedLog, None]:
    """The small log, in each kind of database."""
    async with small_log_in(place_of(request), tmp_path) as made:
        yield made


def place_of(request: pytest.FixtureRequest) -> Place:
    found: Path | Postgres = request.getfixturevalue(request.param)
    return found.migrated() if isinstance(found, Postgres) else found
