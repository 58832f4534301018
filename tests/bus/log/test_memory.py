"""What the log in memory does beside the contract."""

import pytest

from bus_kit import CLUSTER, NOON, eco, plan_made, producer
from bus_kit.memory_broker import MemoryBroker, MemoryLog
from joulie_bus.errors import BrokerRefused
from joulie_bus.streams.subjects import Stream

pytestmark = pytest.mark.anyio


async def test_a_batch_that_does_not_fit_is_stored_not_at_all() -> None:
    broker = MemoryBroker(CLUSTER, lambda: NOON)
    broker.fill(Stream.PLAN, room=2)
    stamp = producer().stamp
    batch = [stamp(event) for event in (plan_made("p1"), eco("a"), eco("b"))]

    with pytest.raises(BrokerRefused, match="maximum messages exceeded"):
        await MemoryLog(broker).append(Stream.PLAN, batch, {CLUSTER.plan_meta: 0})

    assert broker.stream(Stream.PLAN).records == []
