"""Publishes readings of all nodes in turn, evenly and one by one, as their agents do.

    .venv/bin/python benchmarks/kit/readings.py DATA NODES PER_SECOND

A process of its own, so that its CPU is counted apart. It ends with its parent.
"""

import asyncio
import itertools
import sys
import time
from pathlib import Path

from joulie_bus.broker.embedded import address_within
from joulie_bus.events import TelemetrySampled
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.producer import Producer
from joulie_bus.runtime.child_process import die_with_parent
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Subjects, agent_name
from joulie_projections.component.data_directory import DataDirectory

CLUSTER = Subjects("local")
TICK_S = 0.02


def node_name(number: int) -> str:
    """The names that the bare extender knows."""
    return f"node-{number:05d}.example.internal"


async def publish(data: Path, nodes: int, per_second: int) -> None:
    running = DataDirectory(data).running()
    assert running is not None
    address = address_within(data, running.nats_url, Role.ADMIN)
    says = [Producer(agent_name(node_name(at)), CLUSTER, time.time_ns) for at in range(nodes)]
    per_tick, began, sent = max(1, round(per_second * TICK_S)), time.monotonic(), 0
    async with JetStreamLog.open(address, "readings") as bus:
        for turn in itertools.count():
            made = [
                says[at % nodes].stamp(
                    TelemetrySampled(node=node_name(at % nodes), power_mw=_mw(at, turn))
                )
                for at in range(sent, sent + per_tick)
            ]
            await bus.publish(made)
            sent += per_tick
            await asyncio.sleep(max(0.0, began + sent / per_second - time.monotonic()))


def _mw(node: int, turn: int) -> int:
    return 200_000 + node % 100 * 1000 + turn % 7 * 900


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(publish(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
