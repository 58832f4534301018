"""A rebuild gives the same rows at the same position, without blocking readers or producers."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

import pytest
from sqlalchemy import Engine, text

from bus_kit import (
    ANY_FACTS,
    CLUSTER,
    any_fact,
    memory_log,
    noon,
    power,
    producer,
    until,
)
from joulie_bus.errors import Fenced, StateDamaged, StreamReplaced
from joulie_bus.events import Fact
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.protocol import Log
from joulie_bus.streams.records import Message
from joulie_projections.fold.commit import Checkpoint
from joulie_projections.fold.registry import evolve
from joulie_projections.history.history import History
from joulie_projections.projector.rebuild import RebuildResult, rebuild
from joulie_projections.state.rows import Row
from joulie_projections.state.state_changes import Draft
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.store import GenerationInfo, Store
from joulie_projections.view.view import View

pytestmark = pytest.mark.anyio

Projecting = Callable[..., AbstractAsyncContextManager[asyncio.Task[None]]]
Viewing = Callable[[], AbstractAsyncContextManager[View]]
Publish = Callable[..., Awaitable[None]]
HALF, TOTAL, SNAPSHOT_EVERY = 60, 120, 50


@pytest.fixture
async def published(
    projecting: Projecting, viewing: Viewing, publish: Publish, writer: Engine
) -> None:
    rng = random.Random(11)
    async with projecting(snapshot_every=SNAPSHOT_EVERY), viewing() as view:
        for reached in (HALF, TOTAL):  # the first half has a snapshot, however it is committed
            await publish(*(any_fact(rng.randrange(ANY_FACTS)) for _ in range(HALF)))
            await view.wait_for(reached, 60)
            await until(lambda: Store(writer).newest_snapshot() >= SNAPSHOT_EVERY)
        await until(lambda: view.last_beat is not None and view.last_beat.position == TOTAL)


async def rebuild_again(bus: Log, place: Place, from_position: int = 0) -> RebuildResult:
    engine = database.writer(place)
    try:
        with History.of(place) as history:
            start = history.snapshot_before(from_position)
        return await rebuild(bus, engine, "rebuild", start)
    finally:
        engine.dispose()


def held(place: Place) -> tuple[Checkpoint, list[Row]]:
    engine = database.reader(place)
    checkpoint, rows = Store(engine).load()
    engine.dispose()
    assert checkpoint is not None
    return checkpoint, sorted(rows)


@pytest.mark.usefixtures("published")
async def test_the_rebuilt_rows_equal_the_previous_rows(bus: JetStreamLog, place: Place) -> None:
    before, rows = held(place)

    done = await rebuild_again(bus, place)

    after, now = held(place)
    assert done._replace(seconds=0) == RebuildResult(2, TOTAL, TOTAL, 0, 0)
    assert now == rows
    assert after == before._replace(
        generation=2, epoch=before.epoch + 1, incarnation=after.incarnation
    )
    assert after.incarnation != before.incarnation


@pytest.mark.usefixtures("published")
async def test_a_rebuild_from_a_snapshot_folds_fewer_events(
    bus: JetStreamLog, place: Place
) -> None:
    _, rows = held(place)

    done = await rebuild_again(bus, place, from_position=HALF)

    assert held(place)[1] == rows
    assert TOTAL - HALF <= done.events <= TOTAL - SNAPSHOT_EVERY


@pytest.mark.usefixtures("published")
async def test_a_rebuild_corrects_changed_rows(
    bus: JetStreamLog, place: Place, writer: Engine, projecting: Projecting
) -> None:
    _, rows = held(place)
    with writer.begin() as db:
        db.execute(text("DELETE FROM node_twin"))

    async with projecting() as refusing:
        with pytest.raises(StateDamaged, match="`joulie rebuild`"):
            await asyncio.wait_for(refusing, 60)
    await rebuild_again(bus, place)

    assert held(place)[1] == rows


async def test_readers_and_producers_do_not_wait_for_a_rebuild(
    projecting: Projecting, viewing: Viewing, publish: Publish, bus: JetStreamLog, place: Place
) -> None:
    async with viewing() as view, kept_up(projecting) as runs:
        await publish(*(power(f"n{number}", 1) for number in range(30)))
        await view.wait_for(30, 60)
        publishing = asyncio.ensure_future(publish(*(power(f"n{n % 9}", n) for n in range(500))))

        done = await rebuild_again(bus, place)
        await publishing
        await view.wait_for(530, 60)
        await until(lambda: view.last_beat is not None and view.last_beat.position == 530)
        await until(lambda: len(runs) >= 2)  # the projector from before the rebuild exited

        assert view.is_ready
        assert isinstance(runs[0].exception(), ExceptionGroup)
        assert done.differs_at == 0
    with History.of(place) as history:
        checkpoint = history.checkpoint()
        assert checkpoint is not None
        assert (checkpoint.generation, checkpoint.digests) == (2, history.digests())


@contextlib.asynccontextmanager
async def kept_up(
    projecting: Projecting,
) -> AsyncGenerator[Sequence[asyncio.Task[None]], None]:
    """A projector that is restarted when it exits, like under a supervisor."""
    runs: list[asyncio.Task[None]] = []

    async def live() -> None:
        while True:
            async with projecting() as task:
                runs.append(task)
                await asyncio.wait([task])

    keeper = asyncio.create_task(live())
    try:
        yield runs
    finally:
        keeper.cancel()
        await asyncio.wait([keeper])


async def test_a_rebuild_leaves_out_quarantined_messages(
    projecting: Projecting, viewing: Viewing, publish: Publish, bus: JetStreamLog, place: Place
) -> None:
    async with projecting(), viewing() as view:
        await bus.publish([Message(CLUSTER.of(power("a", 1)), "garbage", b"\xff" * 9)])
        await publish(power("a", 100))
        await view.wait_for(2, 60)
    _, rows = held(place)

    await rebuild_again(bus, place)

    assert held(place)[1] == rows


@pytest.mark.usefixtures("published")
async def test_a_rebuild_quarantines_messages_that_the_code_now_refuses(
    bus: JetStreamLog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(draft: Draft, fact: Fact, at: int) -> None:
        if fact.TYPE == "node.seen":
            raise KeyError("a bug")
        evolve(draft, fact, at)

    with monkeypatch.context() as patch:
        patch.setattr("joulie_projections.fold.sequence.evolve", broken)
        done = await rebuild_again(bus, place)

    with History.of(place) as history:
        found, held = history.quarantined(), history.checkpoint()
        assert held is not None
        assert history.digests() == held.digests
    assert done.set_aside == len(found) > 0
    assert all("its fold failed: KeyError('a bug')" in poison.why for poison in found)
    rebuilt = await rebuild_again(
        bus, place
    )  # it stays in quarantine, although it could be folded now
    assert (rebuilt.set_aside, rebuilt.events) == (0, TOTAL)
    with History.of(place) as history:
        assert (history.quarantined(), history.digests()) == (found, held.digests)


@pytest.mark.usefixtures("published")
async def test_a_rebuild_refuses_streams_of_another_history(place: Place) -> None:
    other_log, sender, before = memory_log(), producer("stranger"), held(place)
    await other_log.publish([sender.stamp(any_fact(number)) for number in range(TOTAL)])

    with pytest.raises(StreamReplaced):
        await rebuild_again(other_log, place)

    assert held(place) == before


@pytest.mark.usefixtures("published")
async def test_concurrent_rebuilds_never_activate_inconsistent_rows(
    place: Place, writer: Engine
) -> None:
    store = Store(writer)
    checkpoint, rows = held(place)
    leading = store.acquire("rebuild", 10, "", lambda _: True)
    assert leading is not None
    store.fill(2, rows[:-1], checkpoint.position)

    with pytest.raises(StateDamaged, match="Generation 2"):
        store.activate_generation(leading.epoch, 2, leading, GenerationInfo("1", noon()))
    with pytest.raises(Fenced):
        store.activate_generation(leading.epoch - 1, 2, leading, GenerationInfo("1", noon()))

    assert held(place)[1] == rows
