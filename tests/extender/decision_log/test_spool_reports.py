"""Each replica reports what waits on its disk, as long as it is connected."""

from pathlib import Path

import msgspec
import pytest

from bus_kit import CLUSTER, ask, connected, until
from bus_kit.clock import NOON
from joulie_bus.broker.embedded import Embedded
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.producer import Producer
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.roles import Role
from joulie_bus.streams.spool_report import SpoolReport
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_filter
from joulie_extender.decision_log.shipping import Shipper, shipping
from joulie_extender.decision_log.spool_reports import SpoolReports
from joulie_projections.twin.columns import TwinColumns
from one_broker import anyio_backend, emptied, server

__all__ = ["anyio_backend", "emptied", "server"]  # fixtures
pytestmark = pytest.mark.anyio
REPLICA = "extender-0"
PATIENCE_S = 120


def record(shipper: Shipper, pods: int) -> None:
    moment = DecisionContext(TwinColumns.empty(), 1, 0, NOON)
    for number in range(pods):
        shipper.record(decide_filter(ask(f"pod-{number}"), ["a"], moment, Weights()))


async def test_a_console_hears_what_waits_until_the_broker_has_it(
    server: Embedded, tmp_path: Path
) -> None:
    heard: list[SpoolReport] = []

    def hear(data: bytes) -> None:
        heard.append(msgspec.msgpack.decode(data, type=SpoolReport))

    async with (
        connected(server, "extender", Role.EXTENDER) as connection,
        connected(server, "console", Role.CONSOLE) as console,
        JetStreamLog.over(connection) as bus,
        console.listening(CLUSTER.spools, hear),
    ):
        await console.flush()
        with shipping(Producer(REPLICA, CLUSTER, lambda: NOON), tmp_path) as shipper:
            record(shipper, 3)
            reports = SpoolReports(bus, CLUSTER, REPLICA, shipper)
            async with background(reports.run(), "reports"):
                await until(lambda: [each.waiting for each in heard[-1:]] == [4], PATIENCE_S)
                async with background(shipper.ship(bus), "ship"):
                    await until(lambda: heard[-1].waiting == 0, PATIENCE_S)
            await reports.send(ends=True)
            await until(lambda: heard[-1].ends, PATIENCE_S)

    assert {each.replica for each in heard} == {REPLICA}
