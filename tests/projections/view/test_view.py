"""The projection as a reader holds it: it follows, notices what it missed, and knows its age."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import OperationalError

from joulie_bus.errors import ViewBehind
from joulie_bus.events import Fact, NodeGone
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime import metrics
from joulie_bus.streams.subjects import Stream
from joulie_bus.testing import (
    CLUSTER,
    node_seen,
    noon,
    pending,
    power,
    records,
    until,
)
from joulie_projections.fold.sequence import FoldCursor, SequencedBatch, sequence
from joulie_projections.state.deltas import Heartbeat, encode_delta, pack_digests
from joulie_projections.state.deltas import encode as on_the_bus
from joulie_projections.state.rows import Row, empty_digests, encode
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store
from joulie_projections.testing import tamper
from joulie_projections.view.view import POLL_S, View

pytestmark = pytest.mark.anyio

Projecting = Callable[[], AbstractAsyncContextManager[asyncio.Task[None]]]
Viewing = Callable[[], AbstractAsyncContextManager[View]]
Publish = Callable[..., Awaitable[None]]


class ByHand:
    """Does what a projector does, one step at a time: commits, and tells of it or does not."""

    def __init__(self, engine: Engine, bus: JetStreamLog) -> None:
        self._store = Store(engine)
        self._bus = bus
        self._cluster_state = ClusterState()
        self._cursor = FoldCursor(0, {}, empty_digests(), b"")
        self._says = 0
        self._incarnation = "first"
        self._store.acquire("hand", noon(10), noon(), self._incarnation, lambda _: False)

    def commit(self, *facts: Fact) -> SequencedBatch:
        self._says += 1
        told = records(*facts, name=f"n{self._says}")
        done = sequence(self._cluster_state, self._cursor, told, dict.fromkeys(Stream, ""), noon())
        self._store.commit(1, done.commit)
        done.draft.commit()
        self._cursor = done.cursor
        return done

    async def publish(self, done: SequencedBatch, limit: int = 1_000_000) -> None:
        manifest = done.commit.manifest
        delta = encode_delta(manifest.p_from, manifest.p_to, done.cursor.digests, done.rows, limit)
        await self._bus.tell(CLUSTER.delta, delta)

    async def forge(self, row: Row) -> None:
        """A change that no commit has made."""
        here = self._cursor.position + 1
        delta = encode_delta(here, here, self._cursor.digests, [row], 1_000_000)
        await self._bus.tell(CLUSTER.delta, delta)

    async def beat(self, of: FoldCursor | None = None) -> None:
        cursor = of or self._cursor
        digests = pack_digests(cursor.digests)
        beat = Heartbeat(cursor.position, digests, self._incarnation, 1, 0, 0, 0)
        await self._bus.tell(CLUSTER.beat, on_the_bus(beat))

    def restored(self, cursor: FoldCursor) -> None:
        """The database is a copy of an earlier day."""
        self._incarnation, self._cursor = "restored", cursor


@pytest.fixture
def hand(writer: Engine, bus: JetStreamLog) -> ByHand:
    return ByHand(writer, bus)


def watts(view: View) -> dict[str, float]:
    twin_columns = view.snapshot().twin_columns
    return {
        name: float(twin_columns.floats("measured_w")[row])
        for name, row in twin_columns.rows.items()
    }


def reloads(reason: str) -> float:
    labels = {"reason": reason}
    return metrics.shown_by("extender").get_sample_value("joulie_view_reloads_total", labels) or 0


# --- following --------------------------------------------------------------------------------


async def test_a_view_boots_from_the_database_and_follows_what_is_told(
    hand: ByHand, viewing: Viewing
) -> None:
    hand.commit(power("a", 1), power("b", 2))
    async with viewing() as view:
        await view.wait_ready(5)
        booted = (view.position, watts(view))
        await hand.publish(hand.commit(power("b", 3), power("c", 4)))
        await view.wait_for(4, 5)

        assert booted == (2, {"a": 1, "b": 2})
        assert watts(view) == {"a": 1, "b": 3, "c": 4}


async def test_a_snapshot_stays_as_it_was_while_the_view_goes_on(
    hand: ByHand, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(5)
        before = view.snapshot()
        await hand.publish(hand.commit(power("a", 900)))
        await view.wait_for(2, 5)

        assert (before.position, before.twin_columns.floats("measured_w").tolist()) == (1, [0, 1])


async def test_what_is_told_twice_or_late_changes_nothing(hand: ByHand, viewing: Viewing) -> None:
    first = hand.commit(power("a", 1))
    second = hand.commit(power("a", 2))
    async with viewing() as view:
        await view.wait_ready(5)
        for old in (second, first, second):
            await hand.publish(old)
        await hand.publish(hand.commit(power("b", 3)))
        await view.wait_for(3, 5)

        assert watts(view) == {"a": 2, "b": 3}


async def test_a_view_before_any_projector_is_not_ready_and_says_so(viewing: Viewing) -> None:
    async with viewing() as view:
        with pytest.raises(ViewBehind, match="not loaded yet"):
            await view.wait_ready(0.05)

        assert (view.is_ready, view.position, view.age_s) == (False, 0, float("inf"))


async def test_a_view_is_ready_as_soon_as_a_projector_has_led(
    projecting: Projecting, viewing: Viewing, publish: Publish
) -> None:
    async with viewing() as view:
        await publish(power("a", 1))
        async with projecting():
            await view.wait_for(1, 5)

            assert watts(view) == {"a": 1}


# --- what was missed --------------------------------------------------------------------------


@pytest.fixture
async def steady(hand: ByHand) -> AsyncGenerator[None, None]:
    """Beats that never stop: the view has no silence to be woken by."""

    async def beat() -> None:
        while True:
            await hand.beat()
            await asyncio.sleep(0.1)

    task = asyncio.create_task(beat())
    yield
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.usefixtures("steady")
async def test_a_view_that_missed_a_delta_reads_the_database(
    hand: ByHand, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(5)
        hand.commit(power("b", 2))  # nobody tells
        await hand.publish(hand.commit(power("c", 3)))
        await view.wait_for(3, 5)

        assert watts(view) == {"a": 1, "b": 2, "c": 3}


@pytest.mark.usefixtures("steady")
async def test_a_view_that_missed_the_last_delta_hears_of_it_by_the_next_beat(
    hand: ByHand, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(5)
        hand.commit(power("a", 2))
        await view.wait_for(2, 5)

        assert watts(view) == {"a": 2}


@pytest.mark.usefixtures("steady")
async def test_a_change_too_large_to_be_told_is_read(hand: ByHand, viewing: Viewing) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(5)
        await hand.publish(hand.commit(*(pending(f"p{number}") for number in range(20))), limit=500)
        await view.wait_for(21, 5)

        assert len(view.cluster_state.pods) == 20


@pytest.mark.usefixtures("steady")
async def test_a_view_whose_rows_are_not_the_projectors_starts_anew(
    hand: ByHand, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(5)
        before = reloads("digest")
        await hand.forge(Row("node", "ghost", encode(NodeState(ordinal=7, at=1))))
        await until(lambda: reloads("digest") > before and view.position == 1)

        assert watts(view) == {"a": 1}


@pytest.mark.usefixtures("steady")
async def test_a_restored_database_replaces_everything_that_was_believed(
    hand: ByHand, viewing: Viewing, writer: Engine
) -> None:
    earlier = hand.commit(node_seen("a")).cursor
    hand.commit(node_seen("b"))
    async with viewing() as view:
        await view.wait_for(2, 5)
        moves = await view.moved_since(0)
        with writer.begin() as db:
            db.execute(text("DELETE FROM node_twin WHERE key = 'b'"))
            db.execute(text("UPDATE checkpoint SET position = 1, incarnation = 'restored'"))
        hand.restored(earlier)
        async with asyncio.timeout(5):
            while view.position == 2:
                moves = await view.moved_since(moves)

        assert view.position == 1, "who follows hears of it, though it went back"
        assert list(view.snapshot().twin_columns.rows) == ["a"]


async def test_a_beat_that_a_delta_overtook_reloads_nothing(hand: ByHand, viewing: Viewing) -> None:
    earlier = hand.commit(power("a", 1)).cursor
    async with viewing() as view:
        await view.wait_ready(5)
        before = reloads("another database")
        await hand.publish(hand.commit(power("a", 2)))
        await view.wait_for(2, 5)
        await hand.beat(earlier)
        await until(lambda: view.last_beat is not None and view.last_beat.position == 1)
        await hand.publish(hand.commit(power("a", 3)))
        await view.wait_for(3, 5)

        assert (watts(view), reloads("another database")) == ({"a": 3}, before)


async def test_a_view_follows_by_the_database_alone_where_the_bus_is_silent(
    hand: ByHand, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(5)
        hand.commit(power("a", 2))
        await view.wait_for(2, 5)

        assert watts(view) == {"a": 2}
        assert view.age_s < 1


async def test_a_view_from_before_a_trim_reads_everything_anew(
    hand: ByHand, viewing: Viewing, place: Place
) -> None:
    """Which rows had gone is forgotten up to the cut: by changes alone `a` would stay for ever."""
    hand.commit(power("a", 1), power("b", 2))
    async with viewing() as view:
        await view.wait_ready(5)
        before = reloads("trimmed")
        hand.commit(NodeGone(node="a"))
        hand.commit(power("c", 3))
        row = "(1, 1, ?, 3, ?, '', '', ?, 0, '', ?, 0, '')"
        tamper(place, f"INSERT INTO cut VALUES {row}", *[b"\x80"] * 4)
        tamper(place, "DELETE FROM gone")
        await view.wait_for(4, 5)
        await until(lambda: reloads("trimmed") > before)

        assert watts(view) == {"b": 2, "c": 3}


async def test_a_reader_behind_the_newest_cut_is_not_handed_changes(
    writer: Engine, hand: ByHand, place: Place
) -> None:
    for number in range(1, 4):
        hand.commit(power("a", number))
    tamper(place, "INSERT INTO cut VALUES (1, 1, ?, 2, ?, '', '', ?, 0, '', ?, 0, '')", *[b"x"] * 4)
    store = Store(writer)

    assert [store.changes_since(at, ("node",))[1] is None for at in (0, 1, 2, 3)] == [
        *(True, True, False, False)
    ]


async def test_a_view_opened_late_knows_what_was_told_before(
    projecting: Projecting, viewing: Viewing, publish: Publish
) -> None:
    async with projecting(), viewing() as early:
        await publish(power("a", 1), power("b", 2), power("a", 3))
        await early.wait_for(3, 5)
        async with viewing() as late:
            await late.wait_for(3, 5)

            assert watts(late) == watts(early) == {"a": 3, "b": 2}


# --- alone ------------------------------------------------------------------------------------


async def test_a_view_without_a_projector_keeps_answering_and_grows_old(
    projecting: Projecting, viewing: Viewing, publish: Publish
) -> None:
    async with viewing() as view:
        async with projecting():
            await publish(power("a", 100))
            await view.wait_for(1, 5)
        left = view.snapshot()
        await until(lambda: view.age_s > 1.2)

        now = view.snapshot()
        assert (now.position, watts(view)) == (1, {"a": 100})
        assert now.age_ms > left.age_ms
        assert now.age_ms >= 1200


async def test_a_view_whose_database_and_bus_are_silent_keeps_answering(
    hand: ByHand, bus: JetStreamLog, place: Place
) -> None:
    hand.commit(power("a", 100))
    engine = database.reader(place)
    async with View.open(bus, engine, CLUSTER) as view:
        await view.wait_ready(5)
        refused = fail_every_read(engine)
        await until(lambda: len(refused) >= 2)

        assert (view.position, watts(view)) == (1, {"a": 100})
        assert view.age_s > 1
    engine.dispose()


def fail_every_read(engine: Engine) -> list[str]:
    """The list grows with every try."""
    refused: list[str] = []

    @event.listens_for(engine, "begin")
    def fail(_: object) -> None:
        refused.append("disk I/O error")
        raise OperationalError("BEGIN", None, OSError("disk I/O error"))

    return refused


async def test_a_waiting_view_asks_the_database_now_and_then_and_not_all_the_time(
    bus: JetStreamLog, place: Place
) -> None:
    engine = database.reader(place)
    asked: list[float] = []
    event.listen(engine, "begin", lambda _: asked.append(time.monotonic()))

    async with View.open(bus, engine, CLUSTER):
        await until(lambda: len(asked) >= 4)
    engine.dispose()

    assert asked[3] - asked[0] > 2 * POLL_S


async def test_waiting_for_what_does_not_come_says_how_far_it_came(
    hand: ByHand, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(5)

        with pytest.raises(ViewBehind, match="at position 1 and did not reach 9"):
            await view.wait_for(9, 0.05)
