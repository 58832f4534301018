"""The surroundings of an operator: a projector, a view that follows it, and an API server."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from bus_kit import CLUSTER
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import background
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_projections.decision_log.heads import Signer
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.view.view import View
from kube_api import ApiServer
from kube_builders import joulie_server


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
        await view.wait_ready(60)
        assert not projecting.done()
        yield view
    engine.dispose()


@pytest.fixture
def server() -> ApiServer:
    return joulie_server()


@pytest.fixture
async def api(server: ApiServer, tmp_path: Path) -> AsyncGenerator[Api, None]:
    async with server.listening(), Api.of(server.kubeconfig(tmp_path)) as made:
        yield made
