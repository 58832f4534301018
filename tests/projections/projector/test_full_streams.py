"""The projector with full streams."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from bus_kit import CLUSTER, bound, full, node_seen, one_of_each, refusals, until
from joulie_bus.events import AnyEvent, FilterDecided, OutcomeSeen
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.streams.subjects import Stream
from joulie_projections.decision_log import writer
from joulie_projections.decision_log.heads import decode
from joulie_projections.history.history import History
from joulie_projections.store.database import Place

pytestmark = pytest.mark.anyio

Projecting = Callable[..., AbstractAsyncContextManager[asyncio.Task[None]]]
Publish = Callable[..., Awaitable[None]]
[ANSWER] = [event for event in one_of_each() if isinstance(event, FilterDecided)]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "HEAD_EVERY_S", 0.2)
    monkeypatch.setattr(writer, "REFUSED_S", 0.1)


def kinds(place: Place) -> list[str]:
    with History.of(place) as history:
        return [entry.kind for entry in history.entries()]


async def anchored(bus: JetStreamLog) -> int:
    stored = await bus.last(Stream.HEADS, CLUSTER.heads)
    return decode(stored.data).pos if stored is not None else 0


async def is_anchored(bus: JetStreamLog, pos: int) -> None:
    async with asyncio.timeout(60):
        while await anchored(bus) < pos:
            await asyncio.sleep(0.05)


async def test_a_full_stream_of_heads_blocks_no_writes_and_gets_the_newest_head_later(
    projecting: Projecting,
    publish: Publish,
    bus: JetStreamLog,
    connection: Connection,
    place: Place,
) -> None:
    before = refusals("heads")
    async with projecting() as running:
        async with full(connection, Stream.HEADS):
            await publish(ANSWER)
            await until(lambda: refusals("heads") >= before + 3)
            await publish(node_seen("a"))
            assert (kinds(place), await anchored(bus)) == ([ANSWER.TYPE], 0)
        await is_anchored(bus, 1)

        assert not running.done()


async def test_an_unpublished_head_is_published_after_a_restart(
    projecting: Projecting, publish: Publish, bus: JetStreamLog, connection: Connection
) -> None:
    before = refusals("heads")
    async with full(connection, Stream.HEADS), projecting():
        await publish(ANSWER)
        await until(lambda: refusals("heads") > before)
    async with projecting():
        await is_anchored(bus, 1)


async def test_outcomes_refused_by_a_full_stream_are_published_later(
    projecting: Projecting, publish: Publish, connection: Connection, place: Place
) -> None:
    before = refusals("outcomes")
    facts: list[AnyEvent] = [node_seen("a"), bound("p", "a")]
    async with projecting(outcome_grace_s=0.0) as running:
        async with full(connection, Stream.DEC):
            await publish(*facts)
            await until(lambda: refusals("outcomes") >= before + 3)
            assert (kinds(place), running.done()) == ([], False)
        await until(lambda: kinds(place) == [OutcomeSeen.TYPE])
