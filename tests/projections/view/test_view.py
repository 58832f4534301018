"""The view: following commits, recovering missed changes, and reporting its age."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import OperationalError

from bus_kit import (
    CLUSTER,
    node_seen,
    noon,
    pending,
    power,
    records,
    until,
)
from joulie_bus.errors import ViewBehind
from joulie_bus.events import Fact, NodeGone
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime import metrics
from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.sequence import FoldCursor, SequencedBatch, sequence
from joulie_projections.state.completeness import NEVER_MS
from joulie_projections.state.deltas import Heartbeat, Sent, delta_of, encode_delta, pack_digests
from joulie_projections.state.deltas import encode as on_the_bus
from joulie_projections.state.rows import Row, empty_digests, encode
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.monotonic import monotonic_clock
from joulie_projections.store.store import Store
from joulie_projections.view import view as module
from joulie_projections.view.view import POLL_S, View
from projections_kit import tamper

pytestmark = pytest.mark.anyio

Projecting = Callable[[], AbstractAsyncContextManager[asyncio.Task[None]]]
Viewing = Callable[[], AbstractAsyncContextManager[View]]
Publish = Callable[..., Awaitable[None]]


class ManualProjector:
    """A projector driven by the test: commits, and publishes deltas and heartbeats on request."""

    def __init__(self, engine: Engine, bus: JetStreamLog) -> None:
        self._store = Store(engine)
        self._bus = bus
        self._cluster_state = ClusterState()
        self._cursor = FoldCursor(0, {}, empty_digests(), b"")
        self._producers = self._renewals = 0
        self._incarnation = "first"
        self._store.acquire("hand", 10, self._incarnation, lambda _: False)

    def commit(self, *facts: Fact) -> SequencedBatch:
        self._producers += 1
        sent = records(*facts, name=f"n{self._producers}")
        batch = sequence(self._cluster_state, self._cursor, sent, dict.fromkeys(Stream, ""), noon())
        self._store.commit(1, batch.commit)
        batch.draft.commit()
        self._cursor = batch.cursor
        return batch

    async def publish(
        self, batch: SequencedBatch, limit: int = 1_000_000, sent: Sent | None = None
    ) -> None:
        manifest = batch.commit.manifest
        delta = delta_of(manifest.p_from, manifest.p_to, batch.cursor.digests, batch.rows, sent)
        await self._bus.send_live(CLUSTER.delta, encode_delta(delta, limit))

    def sent(self, *, behind_ms: int, waited_s: float = 0.0, incarnation: str = "first") -> Sent:
        sent_ms = int((time.monotonic() - waited_s) * 1000)
        return Sent(incarnation, monotonic_clock(), sent_ms, behind_ms)

    async def forge(self, row: Row) -> None:
        """Publishes a delta with a row that no commit has changed."""
        here = self._cursor.position + 1
        delta = delta_of(here, here, self._cursor.digests, [row], None)
        await self._bus.send_live(CLUSTER.delta, encode_delta(delta, 1_000_000))

    async def beat(
        self,
        of: FoldCursor | None = None,
        *,
        behind_ms: int = 0,
        waited_s: float | None = None,
        clock: str = "",
    ) -> None:
        cursor = of or self._cursor
        digests = pack_digests(cursor.digests)
        sent_ms = -1 if waited_s is None else int((time.monotonic() - waited_s) * 1000)
        beat = Heartbeat(
            cursor.position,
            digests,
            self._incarnation,
            epoch=1,
            lag=0,
            lag_ms=0,
            decisions=0,
            behind_ms=behind_ms,
            sent_ms=sent_ms,
            clock=clock,
        )
        await self._bus.send_live(CLUSTER.beat, on_the_bus(beat))

    def renew(self, behind_s: float) -> None:
        """Renews the lease, as the projector does each second."""
        self._renewals += 1
        self._store.renew(1, 10 + self._renewals, self._cursor.position, lambda: behind_s)

    def restored(self, cursor: FoldCursor) -> None:
        """Continues as the projector of a restored database."""
        self._incarnation, self._cursor = "restored", cursor


@pytest.fixture
def hand(writer: Engine, bus: JetStreamLog) -> ManualProjector:
    return ManualProjector(writer, bus)


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


async def test_a_view_loads_the_database_and_applies_deltas(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1), power("b", 2))
    async with viewing() as view:
        await view.wait_ready(60)
        booted = (view.position, watts(view))
        await hand.publish(hand.commit(power("b", 3), power("c", 4)))
        await view.wait_for(4, 60)

        assert booted == (2, {"a": 1, "b": 2})
        assert watts(view) == {"a": 1, "b": 3, "c": 4}


async def test_a_snapshot_does_not_change_with_the_view(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        before = view.snapshot()
        await hand.publish(hand.commit(power("a", 900)))
        await view.wait_for(2, 60)

        assert (before.position, before.twin_columns.floats("measured_w").tolist()) == (1, [0, 1])


async def test_repeated_and_late_deltas_change_nothing(
    hand: ManualProjector, viewing: Viewing
) -> None:
    first = hand.commit(power("a", 1))
    second = hand.commit(power("a", 2))
    async with viewing() as view:
        await view.wait_ready(60)
        for old in (second, first, second):
            await hand.publish(old)
        await hand.publish(hand.commit(power("b", 3)))
        await view.wait_for(3, 60)

        assert watts(view) == {"a": 2, "b": 3}


async def test_a_view_without_a_checkpoint_is_not_ready(viewing: Viewing) -> None:
    metrics.POSITION.forget()
    async with viewing() as view:
        with pytest.raises(ViewBehind, match="not loaded yet"):
            await view.wait_ready(0.05)

        assert (view.is_ready, view.position, view.age_s) == (False, 0, NEVER_MS / 1000)
        assert (shown("view_age_seconds"), shown("position")) == (None, None)


async def test_a_view_becomes_ready_with_the_first_projector(
    projecting: Projecting, viewing: Viewing, publish: Publish
) -> None:
    async with viewing() as view:
        await publish(power("a", 1))
        async with projecting():
            await view.wait_for(1, 60)

            assert watts(view) == {"a": 1}


# --- missed changes ---------------------------------------------------------------------------


@pytest.fixture
async def heartbeats(hand: ManualProjector) -> AsyncGenerator[None, None]:
    """Constant heartbeats, so that the view never polls the database because of silence."""

    async def beat() -> None:
        while True:
            await hand.beat()
            await asyncio.sleep(0.1)

    task = asyncio.create_task(beat())
    yield
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.usefixtures("heartbeats")
async def test_a_view_that_missed_a_delta_reads_the_database(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        hand.commit(power("b", 2))  # without a delta
        await hand.publish(hand.commit(power("c", 3)))
        await view.wait_for(3, 60)

        assert watts(view) == {"a": 1, "b": 2, "c": 3}


@pytest.mark.usefixtures("heartbeats")
async def test_a_view_detects_a_missed_last_delta_by_the_next_heartbeat(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        hand.commit(power("a", 2))
        await view.wait_for(2, 60)

        assert watts(view) == {"a": 2}


@pytest.mark.usefixtures("heartbeats")
async def test_a_change_above_the_message_limit_is_read_from_the_database(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        await hand.publish(hand.commit(*(pending(f"p{number}") for number in range(20))), limit=500)
        await view.wait_for(21, 60)

        assert len(view.cluster_state.pods) == 20


@pytest.mark.usefixtures("heartbeats")
async def test_a_view_with_a_digest_mismatch_reloads_all_rows(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        before = reloads("digest")
        await hand.forge(Row("node", "ghost", encode(NodeState(ordinal=7, at=1))))
        await until(lambda: reloads("digest") > before and view.position == 1)

        assert watts(view) == {"a": 1}


@pytest.mark.usefixtures("heartbeats")
async def test_a_restored_database_replaces_all_rows(
    hand: ManualProjector, viewing: Viewing, writer: Engine
) -> None:
    earlier = hand.commit(node_seen("a")).cursor
    hand.commit(node_seen("b"))
    async with viewing() as view:
        await view.wait_for(2, 60)
        moves = await view.moved_since(0)
        restore_without_b(writer)
        hand.restored(earlier)
        async with asyncio.timeout(60):
            while view.position == 2:
                moves = await view.moved_since(moves)

        assert view.position == 1, "followers are notified of a move back"
        assert list(view.snapshot().twin_columns.rows) == ["a"]


def restore_without_b(writer: Engine) -> None:
    with writer.begin() as db:
        db.execute(text("DELETE FROM node_twin WHERE key = 'b'"))
        db.execute(text("UPDATE checkpoint SET position = 1, incarnation = 'restored'"))


async def test_a_heartbeat_overtaken_by_a_delta_causes_no_reload(
    hand: ManualProjector, viewing: Viewing
) -> None:
    earlier = hand.commit(power("a", 1)).cursor
    async with viewing() as view:
        await view.wait_ready(60)
        before = reloads("another database")
        await hand.publish(hand.commit(power("a", 2)))
        await view.wait_for(2, 60)
        await hand.beat(earlier)
        await until(lambda: view.last_beat is not None and view.last_beat.position == 1)
        await hand.publish(hand.commit(power("a", 3)))
        await view.wait_for(3, 60)

        assert (watts(view), reloads("another database")) == ({"a": 3}, before)


async def test_a_view_follows_the_database_while_the_bus_is_silent(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        hand.renew(behind_s=60)
        hand.commit(power("a", 2))
        await view.wait_for(2, 60)
        hand.renew(behind_s=7)
        await until(lambda: view.ages.heard_ms < 2000)
        await until(lambda: view.ages.behind_ms < 50_000)

        assert watts(view) == {"a": 2}
        assert view.ages.behind_ms >= 7000


async def test_a_view_received_a_sign_of_the_projector_after_its_content_was_complete(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    hand.renew(behind_s=7)
    async with viewing() as view:
        await view.wait_ready(60)
        await until(lambda: view.ages.behind_ms < NEVER_MS)

        assert 7000 <= view.ages.heard_ms <= view.ages.behind_ms


async def test_a_database_without_a_projector_is_no_sign_of_one(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        hand.commit(power("a", 2))  # by nothing that renews a lease or sends a heartbeat
        await view.wait_for(2, 60)

        assert view.ages == (NEVER_MS, NEVER_MS)


# --- how far a view is behind ----------------------------------------------------------------


async def test_a_view_is_as_far_behind_as_the_projector_that_it_just_heard(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        await hand.beat(behind_ms=57_000)
        await until(lambda: view.ages.behind_ms < NEVER_MS)

        assert view.ages.heard_ms < 57_000 <= view.ages.behind_ms
        assert view.age_s >= 57, "rules about stale data use the older age"


async def test_a_heartbeat_that_waited_for_the_reader_is_as_old_as_it_is(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        await hand.beat(waited_s=100)  # a clock that is 100 s behind, and no delay
        await until(lambda: view.ages.behind_ms < NEVER_MS)
        first = view.ages
        await until(lambda: view.ages.heard_ms >= first.heard_ms + 300)
        beats = view.last_beat
        await hand.beat(waited_s=107)
        await until(lambda: view.last_beat is not beats)

        assert first.oldest_ms < 5000
        assert view.ages.heard_ms >= 300, "a heartbeat of before the last one tells nothing"


async def test_the_first_heartbeat_of_this_machine_is_as_old_as_it_is(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        await hand.beat(behind_ms=1000, waited_s=7, clock=monotonic_clock())
        await until(lambda: view.ages.behind_ms < NEVER_MS)

        assert view.ages.heard_ms >= 7000
        assert view.ages.behind_ms >= 8000


async def test_a_view_that_lacks_commits_is_not_as_current_as_the_projector(
    hand: ManualProjector, bus: JetStreamLog, place: Place
) -> None:
    hand.commit(power("a", 1))
    engine = database.reader(place)
    async with View.open(bus, engine, CLUSTER) as view:
        await view.wait_ready(60)
        await hand.beat(behind_ms=1000)
        await until(lambda: view.ages.behind_ms < NEVER_MS)
        fail_every_read(engine)
        hand.commit(power("a", 2))
        before = view.ages.behind_ms
        await hand.beat()
        await until(lambda: view.last_beat is not None and view.last_beat.position == 2)

        assert view.ages.behind_ms >= before >= 1000
    engine.dispose()


async def test_a_snapshot_ages_once_the_view_has_moved_on(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        await hand.beat(behind_ms=1000)
        await until(lambda: view.ages.behind_ms < NEVER_MS)
        kept = view.snapshot()
        await hand.publish(hand.commit(power("a", 2)))
        await view.wait_for(2, 60)
        await hand.beat()
        await until(lambda: view.ages.behind_ms < 1000)

        assert view.ages_of(kept).behind_ms >= kept.behind_ms


async def test_a_change_without_a_heartbeat_is_as_far_behind_as_the_projector_sent_it(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        await hand.beat(behind_ms=57_000, waited_s=0, clock=monotonic_clock())
        await until(lambda: view.ages.behind_ms < NEVER_MS)

        await hand.publish(hand.commit(power("a", 2)), sent=hand.sent(behind_ms=200, waited_s=7))
        await view.wait_for(2, 60)

        assert 7200 <= view.ages.behind_ms < 57_000


async def test_a_change_of_another_database_does_not_change_the_age_of_this_one(
    hand: ManualProjector, viewing: Viewing
) -> None:
    first = hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        await hand.beat(behind_ms=57_000, waited_s=60, clock=monotonic_clock())
        await until(lambda: view.ages.behind_ms < NEVER_MS)

        await hand.publish(first, sent=hand.sent(behind_ms=0, incarnation="restored"))
        await hand.publish(hand.commit(power("a", 2)))
        await view.wait_for(2, 60)

        assert view.ages.behind_ms >= 57_000


async def test_a_snapshot_is_as_old_as_the_last_heartbeat_of_its_position(
    hand: ManualProjector, viewing: Viewing
) -> None:
    """Whatever it knew when it was taken: on an idle cluster that is long ago."""
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        await hand.beat(behind_ms=57_000)
        await until(lambda: view.ages.behind_ms < NEVER_MS)
        kept = view.snapshot()
        await hand.beat(behind_ms=0)
        await until(lambda: view.ages.behind_ms < 57_000)

        await hand.publish(hand.commit(power("a", 2)))
        await view.wait_for(2, 60)

        assert kept.behind_ms >= 57_000 > view.ages_of(kept).behind_ms


async def test_a_view_behind_a_trim_reloads_all_rows(
    hand: ManualProjector, viewing: Viewing, place: Place
) -> None:
    """Deletions before the cut are trimmed, so incremental changes would keep `a`."""
    hand.commit(power("a", 1), power("b", 2))
    async with viewing() as view:
        await view.wait_ready(60)
        before = reloads("trimmed")
        hand.commit(NodeGone(node="a"))
        hand.commit(power("c", 3))
        row = "(1, 1, ?, 3, ?, '', '', ?, ?, ?, 0, '')"
        tamper(place, f"INSERT INTO cut VALUES {row}", *[b"\x80"] * 5)
        tamper(place, "DELETE FROM gone")
        await view.wait_for(4, 60)
        await until(lambda: reloads("trimmed") > before)

        assert watts(view) == {"b": 2, "c": 3}


async def test_a_reader_behind_the_newest_cut_gets_no_changes(
    writer: Engine, hand: ManualProjector, place: Place
) -> None:
    for number in range(1, 4):
        hand.commit(power("a", number))
    row = "(1, 1, ?, 2, ?, '', '', ?, ?, ?, 0, '')"
    tamper(place, f"INSERT INTO cut VALUES {row}", *[b"x"] * 5)
    store = Store(writer)

    assert [store.changes_since(at, ("node",))[1] is None for at in (0, 1, 2, 3)] == [
        *(True, True, False, False)
    ]


async def test_a_view_opened_late_has_all_earlier_changes(
    projecting: Projecting, viewing: Viewing, publish: Publish
) -> None:
    async with projecting(), viewing() as early:
        await publish(power("a", 1), power("b", 2), power("a", 3))
        await early.wait_for(3, 60)
        async with viewing() as late:
            await late.wait_for(3, 60)

            assert watts(late) == watts(early) == {"a": 3, "b": 2}


# --- paused -----------------------------------------------------------------------------------


async def test_a_paused_view_drops_changes_and_reads_them_when_it_is_resumed(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        view.pause()
        await hand.publish(hand.commit(power("a", 2)))
        await hand.beat()
        await until(lambda: view.last_beat is not None and view.age_s > 3 * POLL_S)
        while_paused = (view.position, watts(view))
        reported = shown("position"), shown("view_behind_seconds"), shown("view_paused")
        await view.resume(5)

        assert while_paused == (1, {"a": 1})
        assert reported == (1, None, 1), "it is not behind while it is not read"
        assert (shown("position"), shown("view_paused")) == (2, 0)
        assert (shown("view_behind_seconds") or 99) < 3 * POLL_S
        assert (view.position, watts(view)) == (2, {"a": 2})
        assert view.age_s < 3 * POLL_S

        await hand.publish(hand.commit(power("a", 3)))
        await view.wait_for(3, 60)


def shown(name: str) -> float | None:
    return metrics.shown_by("extender").get_sample_value(f"joulie_{name}")


async def test_a_view_that_missed_nothing_is_resumed_at_its_position(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        view.pause()
        await view.resume(5)

        assert (view.position, watts(view)) == (1, {"a": 1})


async def test_a_view_that_was_paused_while_the_database_was_restored_reloads_all_rows(
    hand: ManualProjector, writer: Engine, viewing: Viewing
) -> None:
    hand.commit(node_seen("a"))
    hand.commit(node_seen("b"))
    async with viewing() as view:
        await view.wait_for(2, 60)
        view.pause()
        restore_without_b(writer)
        await view.resume(5)

        assert (view.position, list(view.snapshot().twin_columns.rows)) == (1, ["a"])


async def test_a_view_that_cannot_read_what_it_missed_says_so_and_keeps_its_rows(
    hand: ManualProjector, bus: JetStreamLog, place: Place
) -> None:
    hand.commit(power("a", 1))
    engine = database.reader(place)
    async with View.open(bus, engine, CLUSTER) as view:
        await view.wait_ready(60)
        view.pause()
        paused_at = time.monotonic()
        fail_every_read(engine)
        hand.commit(power("a", 2))
        with pytest.raises(ViewBehind):
            await view.resume(0.5)
        assert shown("view_paused") == 0, "a client reads it"

        await hand.beat()  # a sign of the projector, and still no new rows
        assert (view.position, watts(view)) == (1, {"a": 1})
        paused_s = time.monotonic() - paused_at
        assert view.age_s >= paused_s
    engine.dispose()


# --- without projector, bus or database -------------------------------------------------------


async def test_a_view_without_heartbeats_and_database_tries_another_server_of_the_broker(
    hand: ManualProjector, bus: JetStreamLog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNHEARD_S", 0.2)
    tried: list[str] = []
    monkeypatch.setattr(bus, "leave_server", tried.append)
    hand.commit(power("a", 1))
    async with unreadable(bus, place) as (view, _):
        await until(lambda: bool(tried))

        assert (view.position, watts(view)) == (1, {"a": 1})


async def test_a_view_without_a_projector_keeps_its_rows_and_its_age_grows(
    projecting: Projecting, viewing: Viewing, publish: Publish
) -> None:
    async with viewing() as view:
        async with projecting():
            await publish(power("a", 100))
            await view.wait_for(1, 60)
        left = view.snapshot()
        await until(lambda: view.ages.heard_ms > 1200)

        now = view.snapshot()
        assert (now.position, watts(view)) == (1, {"a": 100})
        assert now.age_ms > left.age_ms
        assert now.age_ms >= 1200


async def test_a_view_without_bus_and_database_keeps_its_rows(
    hand: ManualProjector, bus: JetStreamLog, place: Place
) -> None:
    hand.commit(power("a", 100))
    async with unreadable(bus, place) as (view, failures):
        await until(lambda: len(failures) >= 2)

        assert (view.position, watts(view)) == (1, {"a": 100})
        assert view.age_s > 1


async def test_a_view_keeps_its_rows_when_changes_of_another_history_would_follow_them(
    hand: ManualProjector, bus: JetStreamLog, place: Place
) -> None:
    hand.commit(power("a", 100))
    async with unreadable(bus, place) as (view, failures):
        sent = hand.sent(behind_ms=0, incarnation="restored")
        await hand.publish(hand.commit(power("a", 200)), sent=sent)
        await until(lambda: len(failures) >= 2)

        assert (view.position, watts(view)) == (1, {"a": 100})


def fail_every_read(engine: Engine) -> list[str]:
    """Makes reads fail; the returned list has an entry for each attempt."""
    failures: list[str] = []

    @event.listens_for(engine, "begin")
    def fail(_: object) -> None:
        failures.append("disk I/O error")
        raise OperationalError("BEGIN", None, OSError("disk I/O error"))

    return failures


@contextlib.asynccontextmanager
async def unreadable(
    bus: JetStreamLog, place: Place
) -> AsyncGenerator[tuple[View, list[str]], None]:
    """A view that has read everything, and reads that fail from then on."""
    engine = database.reader(place)
    async with View.open(bus, engine, CLUSTER) as view:
        await view.wait_ready(60)
        yield view, fail_every_read(engine)
    engine.dispose()


async def test_changes_do_not_collect_while_the_first_read_fails(
    hand: ManualProjector, bus: JetStreamLog, place: Place
) -> None:
    engine = database.reader(place)
    failures = fail_every_read(engine)
    async with View.open(bus, engine, CLUSTER) as view:
        for number in range(200):
            await hand.publish(hand.commit(power("a", number)))
        attempts = len(failures)
        await until(lambda: len(failures) > attempts + 1)

        assert view.waiting_bytes < 10_000  # at most those during one attempt
    engine.dispose()


async def test_more_changes_than_may_wait_for_a_read_are_read_from_the_database(
    hand: ManualProjector, bus: JetStreamLog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joulie_projections.view.view.WAITING_BYTES", 2_000)
    hand.commit(power("a", 1))
    engine, ends, begun = database.reader(place), threading.Event(), threading.Event()

    @event.listens_for(engine, "begin")
    def wait(_: object) -> None:
        begun.set()
        ends.wait()

    async with View.open(bus, engine, CLUSTER) as view:
        await until(begun.is_set)
        for number in range(50):
            await hand.publish(hand.commit(power("a", number)))
        await until(lambda: view.waiting_bytes == 2_000)
        ends.set()
        await view.wait_for(51, 60)

        assert watts(view) == {"a": 49}
    engine.dispose()


async def test_a_view_without_checkpoint_polls_the_database_at_an_interval(
    bus: JetStreamLog, place: Place
) -> None:
    engine = database.reader(place)
    reads: list[float] = []
    event.listen(engine, "begin", lambda _: reads.append(time.monotonic()))

    async with View.open(bus, engine, CLUSTER):
        await until(lambda: len(reads) >= 7)
    engine.dispose()

    assert reads[6] - reads[0] > 2 * POLL_S, "two questions at each poll"


async def test_a_timeout_of_wait_for_reports_the_position(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)

        with pytest.raises(ViewBehind, match="at position 1 and did not reach 9"):
            await view.wait_for(9, 0.05)


async def test_a_heartbeat_sent_before_a_fact_does_not_say_that_the_view_includes_it(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        stored_at = time.monotonic()
        await hand.beat(waited_s=5, clock=monotonic_clock())
        await until(lambda: view.ages.behind_ms < NEVER_MS)
        assert not await view.includes_all_before(stored_at, 0.1)

        await hand.beat(waited_s=0, clock=monotonic_clock())
        assert await view.includes_all_before(stored_at, 60)


async def test_the_ages_of_a_view_grow_while_its_event_loop_is_stuck(
    hand: ManualProjector, viewing: Viewing
) -> None:
    hand.commit(power("a", 1))
    async with viewing() as view:
        await view.wait_ready(60)
        await hand.beat(behind_ms=1000)
        await until(lambda: view.ages.behind_ms < NEVER_MS)
        scraped = metrics.shown_by("extender").get_sample_value
        before = [scraped(f"joulie_view_{age}_seconds") or 0.0 for age in ("age", "behind")]
        stuck_since = time.monotonic()
        while time.monotonic() - stuck_since < 0.1:
            pass  # the metrics are served by another thread
        after = [scraped(f"joulie_view_{age}_seconds") or 0.0 for age in ("age", "behind")]

    grown_ms = [round((b - a) * 1000) for a, b in zip(before, after, strict=True)]
    assert min(grown_ms) >= 100
