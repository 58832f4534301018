"""What a projector reads of the stream of heads when it begins to lead."""

from pathlib import Path

import pytest

from joulie_bus.errors import BrokerRefused
from joulie_bus.log import answered
from joulie_bus.log.answered import NO_LEADER
from joulie_bus.log.memory import MemoryBroker, MemoryLog
from joulie_bus.streams.records import Stored
from joulie_bus.streams.subjects import Stream
from joulie_bus.testing import CLUSTER
from joulie_projections.decision_log.anchored import newest
from joulie_projections.decision_log.heads import Signer

pytestmark = pytest.mark.anyio


class Electing(MemoryLog):
    """Has no leader at first."""

    refusals = 2

    async def last(self, stream: Stream, subject: str) -> Stored | None:
        if self.refusals:
            self.refusals -= 1
            raise BrokerRefused(f"$JS.API.STREAM.MSG.GET.{stream}", NO_LEADER, "no leader")
        return await super().last(stream, subject)


async def test_a_projector_that_begins_to_lead_in_an_election_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answered, "PAUSE_S", 0.0)
    bus = Electing(MemoryBroker(CLUSTER, lambda: 0))

    assert await newest(bus, CLUSTER, Signer.of(tmp_path / "head.key")) == 0
    assert bus.refusals == 0
