"""The surroundings of an operator: a projector that folds, and a view that follows it."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import background
from joulie_bus.testing import CLUSTER
from joulie_projections.decision_log.heads import Signer
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.view.view import View


@pytest.fixture
async def projecting(
    bus: JetStreamLog, writer: Engine, tmp_path: Path
) -> AsyncGenerator[asyncio.Task[None], None]:
    signer = Signer.of(tmp_path / "key.pem")
    projector = Projector(bus, CLUSTER, writer, signer, ProjectorSettings())
    async with background(projector.run(), "projector") as task:
        yield task


@pytest.fixture
async def view(
    bus: JetStreamLog, projecting: asyncio.Task[None], database_file: Path
) -> AsyncGenerator[View, None]:
    engine = database.reader(database_file)
    async with View.open(bus, engine, CLUSTER) as view:
        await view.wait_ready(10)
        assert not projecting.done()
        yield view
    engine.dispose()
