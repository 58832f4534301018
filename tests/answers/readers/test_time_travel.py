"""Time travel: any position, from the nearest snapshot, within limits."""

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from audit_kit import NAMES, LogBuilder
from bus_kit import hardware, node_seen, power
from joulie_answers.readers.facts import in_streams
from joulie_answers.readers.history import HistoryReader
from joulie_answers.readers.time_travel import Bounds, TimeTravel
from joulie_audit.recompute.fold import rows_of
from joulie_bus.errors import TooFarBack
from joulie_bus.streams.subjects import Stream
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.history.history import History
from joulie_projections.state.rows import digests_of
from joulie_projections.store.store import Store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def maker(writer: Engine, tmp_path: Path) -> LogBuilder:
    """Eight facts about four nodes, and ten batches of readings."""
    signer = Signer.of(tmp_path / "head.key")
    made = LogBuilder(Store(writer), DecisionLog(writer), signer)
    await made.facts(*(node_seen(name) for name in NAMES), *(hardware(name) for name in NAMES))
    for number in range(10):
        await made.facts(power("n1", 100 + number), power("n2", 200 - number))
    return made


@pytest.fixture
def travel(maker: LogBuilder, database_file: Path) -> Generator[TimeTravel, None, None]:
    history = HistoryReader(lambda: History.readable(database_file))
    yield TimeTravel(in_streams(maker.bus, history), history)
    history.close()


async def watts_at(travel: TimeTravel, position: int) -> float:
    return float((await travel.snapshot_at(position)).twin_columns.floats("measured_w")[1])


@pytest.mark.parametrize(("position", "watts"), [(0, None), (8, 0.0), (9, 100.0), (28, 109.0)])
async def test_every_position_has_its_state(
    travel: TimeTravel, position: int, watts: float | None
) -> None:
    snapshot = await travel.snapshot_at(position)

    assert snapshot.position == position
    assert (None if watts is None else await watts_at(travel, position)) == watts


async def test_the_newest_position_has_the_state_of_the_database(
    travel: TimeTravel, maker: LogBuilder, database_file: Path
) -> None:
    snapshot = await travel.snapshot_at(maker.position)

    with History.of(database_file) as history:
        assert digests_of(rows_of(snapshot.cluster_state)) == history.digests()
        assert snapshot.at == history.committed_at(maker.position)


async def test_it_needs_no_facts_before_the_nearest_snapshot(
    travel: TimeTravel, maker: LogBuilder
) -> None:
    maker.snapshot()
    await maker.facts(power("n1", 300))
    maker.broker.trim(Stream.TEL, 20)

    assert await watts_at(travel, 28) == 109.0
    assert await watts_at(travel, 29) == 300.0


async def test_the_error_for_aged_out_facts_names_the_archive(
    travel: TimeTravel, maker: LogBuilder
) -> None:
    maker.broker.trim(Stream.TEL, 10)

    with pytest.raises(TooFarBack, match=r"aged out.*joulie twin NODE --at 20 --archive DIR"):
        await travel.snapshot_at(20)


async def test_a_recreated_stream_is_refused(travel: TimeTravel, maker: LogBuilder) -> None:
    maker.broker.recreate(Stream.TEL)

    with pytest.raises(TooFarBack, match="JOULIE_TEL is at"):
        await travel.snapshot_at(20)


async def test_too_many_facts_are_refused_before_folding(
    travel: TimeTravel, maker: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(travel, "_bounds", Bounds(facts=10))
    maker.snapshot()
    await maker.facts(*(power("n1", number) for number in range(1, 12)))

    assert await watts_at(travel, 38) == 10.0
    with pytest.raises(TooFarBack, match="11 facts lie between it and the nearest snapshot"):
        await travel.snapshot_at(39)
    with pytest.raises(TooFarBack, match="20 facts"):
        await travel.snapshot_at(20)


async def test_the_wait_for_other_queries_times_out(
    travel: TimeTravel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(travel, "_bounds", Bounds(timeout_s=0.05))
    async with travel._lock:
        with pytest.raises(TooFarBack, match="the wait for other queries"):
            await travel.snapshot_at(20)

    monkeypatch.undo()
    assert await watts_at(travel, 9) == 100.0


async def test_queries_of_the_same_position_share_a_snapshot(travel: TimeTravel) -> None:
    first, second = await asyncio.gather(travel.snapshot_at(12), travel.snapshot_at(12))

    assert first is second


async def test_the_cache_is_bounded(travel: TimeTravel) -> None:
    for position in range(8, 20):
        await travel.snapshot_at(position)

    assert list(travel._cache) == [16, 17, 18, 19]
