"""The projector with a real broker and a real database: nothing is lost or repeated."""

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine
from structlog.testing import capture_logs

from bus_kit import (
    ANY_FACTS,
    CLUSTER,
    any_fact,
    bound,
    decided,
    node_seen,
    plan_made,
    power,
    producer,
    stored,
    until,
)
from joulie_bus.errors import Fenced, StreamReplaced
from joulie_bus.events import AnyEvent, StateSetBack, codec
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import ensure
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.decision_log.heads import Head, decode
from joulie_projections.fold.commit import Checkpoint
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import History
from joulie_projections.state.rows import Row
from joulie_projections.store.database import Place
from joulie_projections.store.retrying import DatabaseExecutor
from joulie_projections.store.store import Store
from joulie_projections.store.tables import checkpoint
from joulie_projections.view.view import View

pytestmark = pytest.mark.anyio

Projecting = Callable[..., AbstractAsyncContextManager[asyncio.Task[None]]]
Viewing = Callable[[], AbstractAsyncContextManager[View]]
Publish = Callable[..., Awaitable[None]]


def manifests(place: Place) -> list[Manifest]:
    with History.of(place) as history:
        return list(history.manifests())


async def test_facts_become_twins_that_a_reader_sees(
    projecting: Projecting, viewing: Viewing, publish: Publish
) -> None:
    async with projecting(), viewing() as view:
        await publish(node_seen("a", cores=8), power("a", 120), node_seen("b"), power("b", 80))
        await view.wait_for(4, 60)

        twin_columns = view.snapshot().twin_columns
        assert sorted(twin_columns.rows) == ["a", "b"]
        assert twin_columns.floats("measured_w")[
            [twin_columns.rows["a"], twin_columns.rows["b"]]
        ].tolist() == [120, 80]
        assert twin_columns.floats("cores")[twin_columns.rows["a"]] == 8


async def test_a_restarted_projector_loses_and_repeats_nothing(
    projecting: Projecting,
    viewing: Viewing,
    publish: Publish,
    connection: Connection,
    place: Place,
) -> None:
    rng, total = random.Random(7), 0
    for _ in range(4):
        facts = [any_fact(rng.randrange(ANY_FACTS)) for _ in range(60)]
        await publish(*facts)
        async with projecting(), viewing() as view:
            await view.wait_for(
                total + rng.randrange(1, 60), 60
            )  # then it is stopped in the middle
        total += len(facts)
    async with projecting(), viewing() as view:
        await view.wait_for(total, 60)

    commits = manifests(place)
    assert [m.p_from for m in commits] == [1, *(m.p_to + 1 for m in commits[:-1])]
    assert commits[-1].p_to == total
    for stream in MERGE_ORDER:
        spans = [r for manifest in commits for r in manifest.ranges if r.stream == stream]
        read = [number for span in spans for number in range(span.first, span.last + 1)]
        assert read == [record.sequence for record in await stored(connection, stream)]
    with History.of(place) as history:
        held = history.checkpoint()
        assert held is not None
        assert held.digests == history.digests()


async def test_a_fact_sent_twice_counts_once(
    projecting: Projecting, viewing: Viewing, bus: JetStreamLog
) -> None:
    stamped = producer().stamp(bound("p", "a"))
    again = stamped._replace(id="another message id")
    async with projecting(), viewing() as view:
        await bus.publish([stamped, again])
        await view.wait_for(2, 60)

        assert view.cluster_state.nodes["a"].pods == 1


async def test_a_standby_leads_after_the_lease_expires_and_not_before(
    projecting: Projecting, viewing: Viewing, publish: Publish, writer: Engine, place: Place
) -> None:
    until = time.time_ns() + 500_000_000
    Store(writer).acquire("elsewhere:1", 0.5, "i", lambda _: False)

    async with projecting(), viewing() as view:
        await publish(node_seen("a"))
        await view.wait_for(1, 60)

        assert view.last_beat is None or view.last_beat.epoch == 2
    assert manifests(place)[0].committed_at > until


async def take_the_lease(writer: Engine) -> None:
    """As a projector does it: PostgreSQL may refuse one of two concurrent transactions, and a
    renewal in between leaves the lease where it is."""
    database = DatabaseExecutor()
    acquire = Store(writer).acquire
    try:
        while await database.until_done(acquire, "another", -1, "i", lambda _: True) is None:
            await asyncio.sleep(0)
    finally:
        database.close()


async def test_a_projector_that_lost_its_lease_exits(
    projecting: Projecting, viewing: Viewing, publish: Publish, writer: Engine
) -> None:
    async with viewing() as view, projecting() as first:
        await publish(node_seen("a"))
        await view.wait_for(1, 60)
        await take_the_lease(writer)
        async with projecting() as second:
            with pytest.raises(ExceptionGroup) as ended:
                await asyncio.wait_for(first, 60)
            await publish(node_seen("b"))
            await view.wait_for(2, 60)

            assert ended.group_contains(Fenced)
            assert not second.done()


class LateLoad:
    """The first reading of the rows waits for the test."""

    def __init__(self) -> None:
        self.reads, self.goes_on = threading.Event(), threading.Event()

    @classmethod
    def of(cls, monkeypatch: pytest.MonkeyPatch) -> "LateLoad":
        late, load = cls(), Store.load

        def wait_and_load(store: Store) -> tuple[Checkpoint | None, list[Row]]:
            if not late.reads.is_set():
                late.reads.set()
                late.goes_on.wait(60)
            return load(store)

        monkeypatch.setattr(Store, "load", wait_and_load)
        return late


@pytest.mark.parametrize("epoch", [None, 0], ids=["lost", "lacked by a standby"])
async def test_a_projector_that_lost_its_lease_before_it_read_the_rows_reports_no_damage(
    projecting: Projecting,
    viewing: Viewing,
    publish: Publish,
    writer: Engine,
    monkeypatch: pytest.MonkeyPatch,
    epoch: int | None,
) -> None:
    """After a failover to a standby that lacked the lease, the next one has the same epoch."""
    async with viewing() as view:
        late = LateLoad.of(monkeypatch)
        async with projecting() as first:
            await until(late.reads.is_set)
            await take_the_lease(writer)
            if epoch is not None:
                await set_epoch(writer, epoch)
            async with projecting():
                await publish(node_seen("a"))
                await view.wait_for(1, 60)
                late.goes_on.set()
                with pytest.raises(ExceptionGroup) as ended:
                    await asyncio.wait_for(first, 60)

    assert ended.group_contains(Fenced)


async def set_epoch(writer: Engine, epoch: int) -> None:
    def change() -> None:
        with writer.begin() as db:
            mine = checkpoint.c.name == "projector"
            db.execute(checkpoint.update().where(mine).values(epoch=epoch))

    database = DatabaseExecutor()
    try:
        await database.until_done(change)
    finally:
        database.close()


async def test_a_projector_that_reads_for_longer_than_its_lease_keeps_it(
    projecting: Projecting, viewing: Viewing, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them would otherwise take it from each other for ever.

    A lease of a busy machine: both are in this process, which may stand still for a while.
    """
    async with viewing() as view:
        late = LateLoad.of(monkeypatch)
        async with projecting(lease_s=3.0) as first:
            await until(late.reads.is_set)
            async with projecting(lease_s=0.3) as second:  # looks often
                await asyncio.sleep(4.0)
                late.goes_on.set()
                await publish(node_seen("a"))
                await view.wait_for(1, 60)

                assert view.last_beat is None or view.last_beat.epoch == 1
                assert (first.done(), second.done()) == (False, False)


async def test_a_clean_shutdown_releases_the_lease(
    projecting: Projecting, viewing: Viewing, publish: Publish
) -> None:
    async with viewing() as view:
        async with projecting(lease_s=60):
            await publish(node_seen("a"))
            await view.wait_for(1, 60)
        async with projecting(lease_s=60):
            await publish(node_seen("b"))
            await view.wait_for(2, 60)


async def test_a_second_projector_of_one_process_waits_for_the_lease(
    projecting: Projecting, viewing: Viewing, publish: Publish
) -> None:
    async with viewing() as view, projecting(lease_s=4.0) as first:
        await publish(node_seen("a"))
        await view.wait_for(1, 60)
        async with projecting(lease_s=4.0) as second:
            await asyncio.sleep(4.5)

            assert (first.done(), second.done()) == (False, False)
        await publish(node_seen("b"))
        await view.wait_for(2, 60)


async def test_a_healthy_standby_logs_no_error(
    projecting: Projecting, viewing: Viewing, publish: Publish
) -> None:
    """PostgreSQL refuses a row lock on a checkpoint that a commit changed meanwhile."""
    with capture_logs() as logged:
        async with viewing() as view, projecting(lease_s=60):
            await publish(node_seen("a"))
            await view.wait_for(1, 60)
            async with projecting(lease_s=0.003):  # it looks each millisecond
                for number in range(2, 60):
                    await publish(power("a", number))
                    await view.wait_for(number, 60)

    problems = [line for line in logged if line["log_level"] in ("warning", "error")]
    assert problems == []


async def test_a_recreated_stream_stops_the_projector(
    projecting: Projecting, viewing: Viewing, publish: Publish, connection: Connection
) -> None:
    async with projecting() as running, viewing() as view:
        await publish(power("a", 100), power("a", 200))
        await view.wait_for(2, 60)

        await connection.api(f"STREAM.DELETE.{Stream.TEL}")
        await ensure(connection, CLUSTER)

        with pytest.raises(ExceptionGroup) as ended:
            await asyncio.wait_for(running, 60)
        assert ended.group_contains(StreamReplaced)


async def test_a_projector_does_not_start_on_a_stream_of_another_history(
    projecting: Projecting, viewing: Viewing, publish: Publish, connection: Connection
) -> None:
    async with projecting(), viewing() as view:
        await publish(power("a", 100))
        await view.wait_for(1, 60)
    await connection.api(f"STREAM.DELETE.{Stream.TEL}")
    await ensure(connection, CLUSTER)
    await publish(power("a", 200), power("a", 300))

    async with projecting() as again:
        with pytest.raises(ExceptionGroup) as ended:
            await asyncio.wait_for(again, 60)
        assert ended.group_contains(StreamReplaced)


async def test_garbage_is_quarantined_and_the_projector_continues(
    projecting: Projecting,
    viewing: Viewing,
    publish: Publish,
    bus: JetStreamLog,
    place: Place,
) -> None:
    garbage = Message(f"{CLUSTER.of(power('a', 1))}", "garbage", b"\xff" * 100)
    async with projecting(), viewing() as view:
        await bus.publish([garbage])
        await publish(power("a", 100))
        await view.wait_for(2, 60)

        assert list(view.cluster_state.nodes) == ["a"]
    with History.of(place) as history:
        assert history.counts().quarantined == 1


async def test_decisions_are_written_and_their_head_is_anchored_on_the_bus(
    projecting: Projecting,
    viewing: Viewing,
    publish: Publish,
    connection: Connection,
    place: Place,
) -> None:
    events: list[AnyEvent] = [decided("p1"), power("a", 100), decided("p2")]
    async with projecting(), viewing() as view:
        await publish(*events)
        await until(lambda: view.last_beat is not None and view.last_beat.decisions == 2)

    with History.of(place) as history:
        assert [entry.pod_uid for entry in history.entries()] == ["p1", "p2"]
        assert await _anchored(connection) == history.heads()


@pytest.mark.parametrize("lost", ["a decision", "a plan"])
async def test_an_empty_database_that_replaces_another_is_recorded(
    lost: str, projecting: Projecting, viewing: Viewing, publish: Publish, place: Place
) -> None:
    answer = decided("p1")
    of_another = replace(answer, basis=replace(answer.basis, view=7, incarnation="lost"))
    made = {"a decision": of_another, "a plan": replace(plan_made(), view=7)}
    await publish(answer, made[lost])
    async with projecting(), viewing() as view:
        await until(lambda: view.last_beat is not None and view.last_beat.decisions >= 2)

    with History.of(place) as history:
        [found] = [codec.decoded(entry.message, "entry") for entry in history.set_backs()]
        checkpoint = history.checkpoint()
    assert checkpoint is not None
    assert found == StateSetBack(incarnation=checkpoint.incarnation, before="", position=0)


async def test_what_was_answered_before_the_first_start_replaces_nothing(
    projecting: Projecting, viewing: Viewing, publish: Publish, place: Place
) -> None:
    await publish(decided("p1"), plan_made())
    async with projecting(), viewing() as view:
        await until(lambda: view.last_beat is not None and view.last_beat.decisions == 1)

    with History.of(place) as history:
        assert list(history.set_backs()) == []


async def _anchored(connection: Connection) -> list[Head]:
    return [decode(record.data) for record in await stored(connection, Stream.HEADS)]
