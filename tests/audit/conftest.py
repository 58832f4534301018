"""A past of each test's own."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from joulie_audit.testing import LogMaker, Past, small_past
from joulie_projections.decisions import DecisionLog
from joulie_projections.heads import Signer
from joulie_projections.store import Store


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
