"""Back to any moment, from the nearest snapshot, within bounds that nobody can talk away."""

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from joulie_audit.replay.fold import rows_of
from joulie_audit.testing import NAMES, LogBuilder
from joulie_bus.errors import TooFarBack
from joulie_bus.streams.subjects import Stream
from joulie_bus.testing import hardware, node_seen, power
from joulie_console.views import time_travel
from joulie_console.views.past import Past
from joulie_console.views.time_travel import Travel
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
def way(maker: LogBuilder, database_file: Path) -> Generator[Travel, None, None]:
    past = Past(lambda: History.readable(database_file))
    yield Travel(maker.bus, past)
    past.close()


async def watts_at(way: Travel, position: int) -> float:
    return float((await way.to(position)).twin_columns.floats("measured_w")[1])


@pytest.mark.parametrize(("position", "watts"), [(0, None), (8, 0.0), (9, 100.0), (28, 109.0)])
async def test_every_position_is_a_moment(way: Travel, position: int, watts: float | None) -> None:
    moment = await way.to(position)

    assert moment.position == position
    assert (None if watts is None else await watts_at(way, position)) == watts


async def test_the_newest_moment_is_what_the_database_holds(
    way: Travel, maker: LogBuilder, database_file: Path
) -> None:
    moment = await way.to(maker.position)

    with History.of(database_file) as history:
        assert digests_of(rows_of(moment.cluster_state)) == history.digests()
        assert moment.at == history.committed_at(maker.position)


async def test_it_starts_at_the_nearest_snapshot_and_needs_no_fact_before_it(
    way: Travel, maker: LogBuilder
) -> None:
    maker.snapshot()
    await maker.facts(power("n1", 300))
    maker.broker.trim(Stream.TEL, 20)

    assert await watts_at(way, 28) == 109.0
    assert await watts_at(way, 29) == 300.0


async def test_facts_that_have_aged_out_are_told_with_where_else_they_may_be(
    way: Travel, maker: LogBuilder
) -> None:
    maker.broker.trim(Stream.TEL, 10)

    with pytest.raises(TooFarBack, match=r"aged out.*joulie twin NODE --at 20 --archive DIR"):
        await way.to(20)


async def test_another_stream_of_that_name_is_not_the_past(way: Travel, maker: LogBuilder) -> None:
    maker.broker.recreate(Stream.TEL)

    with pytest.raises(TooFarBack, match="JOULIE_TEL is at"):
        await way.to(20)


async def test_too_long_a_way_is_refused_before_the_first_step(
    way: Travel, maker: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_travel, "FARTHEST", 10)
    maker.snapshot()
    await maker.facts(*(power("n1", number) for number in range(1, 12)))

    assert await watts_at(way, 38) == 10.0
    with pytest.raises(TooFarBack, match="11 facts lie between it and the nearest snapshot"):
        await way.to(39)
    with pytest.raises(TooFarBack, match="20 facts"):
        await way.to(20)


async def test_nobody_waits_for_ever_for_others_to_come_back(
    way: Travel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_travel, "LONGEST_S", 0.05)
    async with way._alone:
        with pytest.raises(TooFarBack, match="the wait for others"):
            await way.to(20)

    monkeypatch.undo()
    assert await watts_at(way, 9) == 100.0


async def test_who_asks_for_the_same_moment_gets_the_same_one(way: Travel) -> None:
    first, second = await asyncio.gather(way.to(12), way.to(12))

    assert first is second


async def test_no_more_than_a_few_moments_are_kept(way: Travel) -> None:
    for position in range(8, 20):
        await way.to(position)

    assert list(way._seen) == [16, 17, 18, 19]
