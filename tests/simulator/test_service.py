"""The running simulation over a broker."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from bus_kit import CLUSTER, producer, until
from joulie_bus.events import SleepOrdered, WakeOrdered
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import background
from joulie_projections.decision_log.heads import Signer
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.view.view import View
from joulie_simulator.service import Simulation, SimulatorOptions

pytestmark = pytest.mark.anyio


async def test_nodes_carry_out_orders_without_waiting_for_their_next_reading(
    bus: JetStreamLog, database_file: Path, writer: Engine, tmp_path: Path
) -> None:
    projector = Projector(bus, CLUSTER, writer, Signer.of(tmp_path / "key"), ProjectorSettings())
    options = SimulatorOptions(nodes=2, sample_s=3600, pods_per_s=0.01)
    engine, ordering = database.reader(database_file), producer()

    def is_ready(name: str) -> bool:
        node = view.cluster_state.nodes.get(name)
        return node is not None and node.ready

    async with background(projector.run(), "projector"), View.open(bus, engine, CLUSTER) as view:
        simulation = Simulation(bus, CLUSTER, view, options)
        async with background(simulation.run(), "simulation"):
            await until(lambda: len(view.cluster_state.nodes) == 2)
            name = next(iter(view.cluster_state.nodes))
            sleep = SleepOrdered(plan="p1", node=name, because="it is empty")
            await bus.publish([ordering.stamp(sleep)])
            await until(lambda: not is_ready(name))
            wake = WakeOrdered(plan="p2", node=name, because="pods wait for it")
            await bus.publish([ordering.stamp(wake)])
            await until(lambda: is_ready(name))
    engine.dispose()
