"""The tail while the database or the broker does not answer."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from audit_kit import LogBuilder
from bus_kit import node_seen, plan_made, until
from bus_kit.memory_broker import MemoryLog
from console_kit import energy_of
from joulie_answers.readers.history import HistoryReader, PlacedPlans
from joulie_bus.errors import BrokerRefused, DatabaseUnreachable
from joulie_bus.log import answered
from joulie_bus.log.answered import NO_LEADER
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.records import StreamState
from joulie_bus.streams.subjects import Stream
from joulie_console.stream import event_tail
from joulie_console.stream.event_tail import EventTail
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.history.history import History
from joulie_projections.store.store import Store

pytestmark = pytest.mark.anyio


class Failing(HistoryReader):
    """A database that fails over once its newest decision was read."""

    failures = 2

    async def plan_positions(self, down_to: int) -> PlacedPlans:
        if self.failures:
            self.failures -= 1
            raise DatabaseUnreachable("postgresql://db", "server is in hot standby mode")
        return await super().plan_positions(down_to)


async def test_a_tail_that_starts_during_a_failover_waits_for_the_database(
    writer: Engine, database_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_tail, "POLL_S", 0.05)
    made = LogBuilder(Store(writer), DecisionLog(writer), Signer.of(tmp_path / "head.key"))
    await made.facts(node_seen("n1"), plan_made("p1"))
    history = Failing(lambda: History.readable(database_file))
    tail = EventTail(made.bus, history, energy_of(database_file))
    async with background(tail.follow(), "tail"):
        await until(lambda: tail.is_ready)
    history.close()

    assert history.failures == 0
    assert [line.number for line in tail.plans_after(0)] == [1]
    assert tail.database_error == ""


class Electing(MemoryLog):
    """Has no leader at first."""

    refusals = 2

    async def state(self, stream: Stream) -> StreamState:
        if self.refusals:
            self.refusals -= 1
            raise BrokerRefused(f"$JS.API.STREAM.INFO.{stream}", NO_LEADER, "no leader")
        return await super().state(stream)


async def test_a_tail_that_starts_during_an_election_waits_for_the_broker(
    writer: Engine, database_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answered, "PAUSE_S", 0.0)
    made = LogBuilder(Store(writer), DecisionLog(writer), Signer.of(tmp_path / "head.key"))
    await made.facts(node_seen("n1"), plan_made("p1"))
    bus = Electing(made.broker)
    history = HistoryReader(lambda: History.readable(database_file))
    tail = EventTail(bus, history, energy_of(database_file))
    async with background(tail.follow(), "tail"):
        await until(lambda: tail.is_ready)
    history.close()

    assert bus.refusals == 0
    assert [line.number for line in tail.plans_after(0)] == [1]
