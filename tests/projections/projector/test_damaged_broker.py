"""A server of the broker whose copy of a stream lacks messages: what the projector reports."""

from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from bus_kit import CLUSTER, VirtualClock
from bus_kit.memory_broker import MemoryBroker, MemoryLog
from bus_kit.waiting import until
from joulie_bus.errors import Unreachable
from joulie_bus.runtime import metrics
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.records import IncompleteCopy
from joulie_bus.streams.subjects import Stream
from joulie_projections.projector import copies
from joulie_projections.projector.copies import CopyWatch

pytestmark = pytest.mark.anyio
FOUND = IncompleteCopy("n1", Stream.OBS, 1012)


class Bus(MemoryLog):
    def __init__(self, rounds: Sequence[Sequence[IncompleteCopy] | Exception]) -> None:
        super().__init__(MemoryBroker(CLUSTER, VirtualClock()))
        self.left: list[Sequence[IncompleteCopy] | Exception] = list(rounds)

    async def incomplete_copies(self) -> Sequence[IncompleteCopy]:
        found = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if isinstance(found, Exception):
            raise found
        return found


def metric() -> float | None:
    labels = {"server": "n1", "stream": "JOULIE_OBS"}
    return metrics.PROJECTOR.get_sample_value("joulie_broker_missing_messages", labels)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "ROUND_S", 0.0)


async def test_a_copy_is_reported_until_it_is_complete() -> None:
    bus = Bus([[FOUND], [FOUND], Unreachable("here", "cut"), [FOUND]])
    watch = CopyWatch(bus)
    with capture_logs() as logs:
        async with background(watch.follow(), "watch"):
            await until(lambda: len(bus.left) == 1)
            assert (watch.incomplete, metric()) == ([FOUND], 1012)
            bus.left = [[]]
            await until(lambda: not watch.incomplete)

    assert metric() is None
    (named,) = [line for line in logs if line["event"] == "copy_incomplete"]
    assert named["server"] == "n1"
    assert "delete its JetStream store" in named["what"]
