"""Failure drills: no position is lost or repeated, and the rows match the streams."""

import asyncio
import contextlib
import random
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, closing
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import make_url, select
from sqlalchemy.exc import DatabaseError
from structlog.testing import capture_logs

import joulie_migrations
from bus_kit import (
    ANY_FACTS,
    CLUSTER,
    Backup,
    Senders,
    any_fact,
    claim,
    node_seen,
    one_of_each,
    plan_made,
    power,
    producer,
    running_broker,
    stored,
)
from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import StreamReplaced
from joulie_bus.events import AnyEvent, Fact, FilterDecided, OutcomeSeen, StateSetBack, codec
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import state_of
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.fold.commit import Checkpoint
from joulie_projections.fold.manifest import hash_of_all
from joulie_projections.fold.sequence import fold
from joulie_projections.history.history import History, StoredEntry
from joulie_projections.projector.projector import ProjectorSettings
from joulie_projections.state.rows import changed_rows, empty_digests, state_digest
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store
from joulie_projections.store.tables import checkpoint
from projections_kit import EXIT_FENCED, KillPoint, Postgres, ProjectorProcess

pytestmark = pytest.mark.anyio

SETTINGS = ProjectorSettings(
    batch=20, lease_s=0.4, snapshot_every=50, snapshots=3, outcome_grace_s=0.2
)
Start = Callable[..., ProjectorProcess]
Projecting = Callable[..., AbstractAsyncContextManager[asyncio.Task[None]]]
Shortage = Callable[[Path], AbstractContextManager[None]]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncGenerator[Embedded, None]:
    """A broker of this test only: it may be killed."""
    async with running_broker(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def start(broker: Embedded, place: Place, tmp_path: Path) -> Generator[Start, None, None]:
    processes: list[ProjectorProcess] = []

    def begin(kill: KillPoint | None = None, at: Place = place) -> ProjectorProcess:
        key = tmp_path / "signing.key"
        address = broker.address_of(Role.PROJECTOR)
        processes.append(ProjectorProcess(address, CLUSTER, at, key, SETTINGS, kill))
        return processes[-1]

    yield begin
    for victim in processes:
        victim.end()


class Workload:
    """Endless facts and answers; some messages are sent twice."""

    def __init__(self, bus: JetStreamLog, seed: int) -> None:
        self._bus = bus
        self._rng = random.Random(seed)
        self._sender = Senders()

    async def publish(self, count: int) -> None:
        messages = [self._sender.stamp(self._event()) for _ in range(count)]
        again = [m._replace(id=f"again {m.id}") for m in self._rng.sample(messages, count // 10)]
        await self._bus.publish([*messages, *again])

    def _event(self) -> AnyEvent:
        if self._rng.random() < 0.2:
            return ANSWER
        fact: Fact = any_fact(self._rng.randrange(ANY_FACTS))
        return fact


[ANSWER] = [event for event in one_of_each() if isinstance(event, FilterDecided)]


async def caught_up(
    connection: Connection, place: Place, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Waits until all messages of the streams are committed, answers and outcomes too."""
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(is_at, place, await ends(connection)):
            meanwhile()
            await asyncio.sleep(0.05)


async def ends(connection: Connection) -> dict[Stream, int]:
    wanted = (*MERGE_ORDER, Stream.DEC)
    return {stream: (await state_of(connection, stream)).last for stream in wanted}


def is_at(place: Place, last: dict[Stream, int]) -> bool:
    engine = database.reader(place)
    try:
        held, log = Store(engine).checkpoint(), DecisionLog(engine)
        logged = held.inputs if held else {}
        at = {stream: logged[stream].sequence if stream in logged else 0 for stream in MERGE_ORDER}
        return {**at, Stream.DEC: log.read_to()} == last and not log.due(1)
    except (DatabaseError, OSError):
        return False  # the database is down, or another process is opening it
    finally:
        engine.dispose()


async def pause_between_commits(victim: ProjectorProcess, place: Place) -> None:
    """A process that is paused within a commit would keep the database locked."""
    async with asyncio.timeout(60):
        while True:
            victim.signal(signal.SIGSTOP)
            if await asyncio.to_thread(may_be_written, place):
                return
            victim.signal(signal.SIGCONT)
            await asyncio.sleep(0.05)


def may_be_written(place: Place) -> bool:
    engine = database.writer(place)
    try:
        with engine.begin() as db:
            db.execute(select(checkpoint).with_for_update(nowait=True)).all()
        return True
    except DatabaseError:
        return False
    finally:
        engine.dispose()


async def require_complete(connection: Connection, place: Place) -> None:
    """Folds the streams again by the manifests, and compares rows, digests and entries."""
    facts = {stream: await stored(connection, stream) for stream in MERGE_ORDER}
    with History.of(place) as history:
        manifests, held = list(history.manifests()), history.checkpoint()
        aside = frozenset(poison.position for poison in history.quarantined())
        digests, entries = history.digests(), list(history.entries())
    cluster_state, position, now = ClusterState(), 0, empty_digests()
    for manifest in manifests:
        assert manifest.p_from == position + 1
        records = [r for at in manifest.ranges for r in facts[at.stream][at.first - 1 : at.last]]
        assert hash_of_all([record.data for record in records]) == manifest.facts_hash
        draft = Draft(cluster_state)
        fold(draft, records, position, aside)
        _, now = changed_rows(draft.changed(), now)
        draft.commit()
        position += len(records)
        assert (position, state_digest(now)) == (manifest.p_to, manifest.state_digest)
    assert position == sum(len(records) for records in facts.values())
    assert held is not None
    assert (held.position, held.digests, digests) == (position, now, now)
    await require_every_decision(connection, entries)


async def require_every_decision(connection: Connection, entries: list[StoredEntry]) -> None:
    published = dict.fromkeys(record.data for record in await stored(connection, Stream.DEC))
    outcomes = [entry.pod_uid for entry in entries if entry.kind == OutcomeSeen.TYPE]

    assert [entry.pos for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry.message for entry in entries] == list(published)
    assert len(set(outcomes)) == len(outcomes)


def has_ended(victim: ProjectorProcess) -> bool:
    return victim.exit_code is not None


async def exit_code_of(victim: ProjectorProcess) -> int | None:
    async with asyncio.timeout(60):
        while not has_ended(victim):
            await asyncio.sleep(0.01)
    return victim.exit_code


async def exit_code_under(workload: Workload, victim: ProjectorProcess) -> int | None:
    """Publishes until the process has ended.

    While a snapshot is saved, none is begun: however many events there are, on a slow machine one
    snapshot may cover them all.
    """
    async with asyncio.timeout(60):
        while not has_ended(victim):
            await workload.publish(SOME)
            await asyncio.sleep(0.1)
    return victim.exit_code


METHODS = ("commit", "save_snapshot", "append")
SOME = 50  # events
KILL_POINTS = [KillPoint(method, when) for method in METHODS for when in ("before", "after")]


@pytest.mark.parametrize("kill", KILL_POINTS, ids=lambda kill: f"{kill.when} {kill.method}")
async def test_a_projector_killed_around_a_commit_loses_nothing(
    kill: KillPoint, start: Start, bus: JetStreamLog, connection: Connection, place: Place
) -> None:
    workload = Workload(bus, seed=1)
    for nth in (1, 2):
        assert await exit_code_under(workload, start(kill._replace(nth=nth))) == -signal.SIGKILL
    start()
    await caught_up(connection, place)

    await require_complete(connection, place)


async def test_of_two_concurrent_projectors_one_commits(
    start: Start, bus: JetStreamLog, connection: Connection, place: Place
) -> None:
    workload = Workload(bus, seed=2)
    processes = [start(), start()]
    for _ in range(5):
        await workload.publish(60)

    def restart_if_both_ended() -> None:
        """Both may have lost their leases on a slow machine; a supervisor starts another one."""
        if all(victim.exit_code is not None for victim in processes):
            processes.append(start())

    await caught_up(connection, place, restart_if_both_ended)
    await require_complete(connection, place)

    assert {victim.exit_code for victim in processes} <= {None, EXIT_FENCED}


async def test_a_projector_that_was_paused_beyond_its_lease_exits(
    start: Start, bus: JetStreamLog, connection: Connection, place: Place
) -> None:
    workload, paused = Workload(bus, seed=3), start()
    await workload.publish(60)
    await caught_up(connection, place)
    await pause_between_commits(paused, place)
    await workload.publish(60)
    start()
    await caught_up(connection, place)

    paused.signal(signal.SIGCONT)

    assert await exit_code_of(paused) == EXIT_FENCED
    await require_complete(connection, place)


async def test_reading_continues_after_the_broker_restarts(
    start: Start, bus: JetStreamLog, connection: Connection, place: Place, broker: Embedded
) -> None:
    workload = Workload(bus, seed=4)
    victim = start()
    for _ in range(3):
        await workload.publish(60)
        broker.kill()
        await broker.wait()
        await broker.start()
    await caught_up(connection, place)
    await require_complete(connection, place)

    assert victim.exit_code is None


@pytest.fixture
def own_postgres() -> Generator[Postgres, None, None]:
    """A server with fsync that may be killed."""
    with Postgres.running(durable=True) as server:
        yield server


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_a_crash_of_postgres_loses_nothing(
    start: Start, bus: JetStreamLog, connection: Connection, own_postgres: Postgres
) -> None:
    place, workload = own_postgres.migrated(), Workload(bus, seed=5)
    victim = start(at=place)
    for _ in range(3):
        await workload.publish(100)
        await asyncio.to_thread(own_postgres.stop, signal.SIGQUIT)
        await workload.publish(20)
        await asyncio.to_thread(own_postgres.start)
    await caught_up(connection, place)
    await require_complete(connection, place)

    assert victim.exit_code is None


async def test_an_older_copy_of_the_database_catches_up_under_a_new_incarnation(
    start: Start,
    bus: JetStreamLog,
    connection: Connection,
    place: Place,
    postgres: Postgres,
    tmp_path: Path,
) -> None:
    workload, first = Workload(bus, seed=6), start()
    await workload.publish(100)
    await caught_up(connection, place)
    first.signal(signal.SIGTERM)
    await exit_code_of(first)
    older = copy_of(place, postgres, tmp_path)
    copied_at = position_of(older)
    second = start()
    await workload.publish(100)
    await caught_up(connection, place)
    second.signal(signal.SIGTERM)  # a clean end: the last head is signed and anchored
    await exit_code_of(second)

    start(at=older)
    await caught_up(connection, older)

    await require_complete(connection, older)
    assert incarnation(older) != incarnation(place)
    loss = StateSetBack(
        incarnation=incarnation(older), before=incarnation(place), position=copied_at
    )
    assert set_backs(older) == [loss]
    assert [body for body in bodies(older) if codec.decoded(body, "entry") != loss] == bodies(place)


def copy_of(place: Place, postgres: Postgres, folder: Path) -> Place:
    if isinstance(place, Path):
        copy = folder / "older.db"
        with closing(sqlite3.connect(place)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        return copy
    name = make_url(place).database
    postgres.execute("postgres", f"CREATE DATABASE older_{name} TEMPLATE {name}")
    return postgres.url(f"older_{name}")


def checkpoint_of(place: Place) -> Checkpoint:
    with History.of(place) as history:
        held = history.checkpoint()
    assert held is not None
    return held


def incarnation(place: Place) -> str:
    return checkpoint_of(place).incarnation


def position_of(place: Place) -> int:
    return checkpoint_of(place).position


def set_backs(place: Place) -> list[AnyEvent]:
    with History.of(place) as history:
        return [codec.decoded(entry.message, "entry") for entry in history.set_backs()]


def bodies(place: Place) -> list[bytes]:
    with History.of(place) as history:
        return [entry.message for entry in history.entries()]


# --- a broker that was restored to an older state ----------------------------------------------

OF_EACH: dict[Stream, AnyEvent] = {
    Stream.TEL: power("a", 100),
    Stream.OBS: node_seen("a"),
    Stream.PLAN: plan_made("p1"),
    Stream.CLAIM: claim("g1", "p1"),
    Stream.DEC: ANSWER,
}


@pytest.mark.parametrize("place", ["database_file"], indirect=True)
@pytest.mark.parametrize("is_running", [False, True], ids=["while stopped", "while running"])
@pytest.mark.parametrize("stream", OF_EACH)
async def test_a_stream_that_was_restored_and_grew_past_the_position_stops_the_projector(  # noqa: PLR0913
    stream: Stream,
    is_running: bool,
    projecting: Projecting,
    broker: Embedded,
    bus: JetStreamLog,
    connection: Connection,
    place: Place,
    tmp_path: Path,
) -> None:
    async def publish(boot: str, times: int) -> None:
        sender = producer(boot=boot)
        await bus.publish([sender.stamp(OF_EACH[stream]) for _ in range(times)])

    await publish("b1", 1)
    backup = await Backup.of(broker, tmp_path / "broker")
    await publish("b2", 2)
    async with contextlib.AsyncExitStack() as first:
        running = await first.enter_async_context(projecting())
        await caught_up(connection, place)
        if not is_running:
            await first.aclose()
        before = positions(place)
        await backup.set_back()
        await publish("b3", 4)
        again = running if is_running else await first.enter_async_context(projecting())
        with pytest.raises(ExceptionGroup) as ended:
            await asyncio.wait_for(again, 60)

    # A running projector may compare before the stream has grown again, and see its last sequence.
    what = "(a different message 3|sequence [12]) " if is_running else "a different message 3 "
    logged = f"{stream} is at {what}.*Restore the stream"
    assert ended.group_contains(StreamReplaced, match=logged)
    assert positions(place) == before


def positions(place: Place) -> tuple[int, int]:
    with History.of(place) as history:
        held = history.checkpoint()
        assert held is not None
        return held.position, len(list(history.entries()))


# --- a disk with no room left -------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path, None, None]:
    """A database on a file system of its own."""
    with mounted(tmp_path / "disk", "8m") as disk:
        engine = database.migrator(disk / "joulie.db")
        joulie_migrations.upgrade(engine)
        engine.dispose()
        yield disk / "joulie.db"


@contextlib.contextmanager
def mounted(disk: Path, size: str) -> Generator[Path, None, None]:
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "none", str(disk)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root on Linux can mount a small disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@contextlib.contextmanager
def full(disk: Path) -> Generator[None, None, None]:
    """Another process has filled the disk."""
    filling = disk / "filling"
    with contextlib.suppress(OSError), open(filling, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        filling.unlink()


@contextlib.contextmanager
def limited(disk: Path) -> Generator[None, None, None]:
    """A quota: no file may grow beyond the current size of the largest database file."""
    was = resource.getrlimit(resource.RLIMIT_FSIZE)
    grown = max(file.stat().st_size for file in disk.glob("joulie.db*"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (grown, was[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, was)


@pytest.mark.parametrize(
    ("place", "shortage", "why"),
    [
        pytest.param("small_disk", full, "database or disk is full", id="full"),
        pytest.param("database_file", limited, "disk I/O error", id="quota"),
    ],
    indirect=["place"],
)
async def test_a_projector_on_a_full_disk_logs_it_and_continues_without_loss(
    projecting: Projecting,
    bus: JetStreamLog,
    connection: Connection,
    place: Path,
    shortage: Shortage,
    why: str,
) -> None:
    reasons = await without_room(projecting, bus, connection, place, shortage(place.parent))

    assert reasons == {why}


async def without_room(
    projecting: Projecting,
    bus: JetStreamLog,
    connection: Connection,
    place: Place,
    shortage: AbstractContextManager[None],
) -> set[str]:
    """Runs a projector through a shortage; returns the logged reasons. Nothing is lost."""
    workload = Workload(bus, seed=9)
    with capture_logs() as logged:
        async with projecting(batch=100, outcome_grace_s=0.2) as running:
            await workload.publish(60)
            await caught_up(connection, place)
            with shortage:
                while not running.done() and not any(line["event"] == "refused" for line in logged):
                    await workload.publish(100)
            await workload.publish(20)
            await caught_up(connection, place)
            assert not running.done()

    await require_complete(connection, place)
    assert any(line["event"] == "accepted" for line in logged)
    return {line["why"] for line in logged if line["event"] == "refused"}


class SmallDiskPostgres(NamedTuple):
    """A server with its database on a small disk."""

    server: Postgres
    disk: Path

    def migrated(self) -> str:
        return self.server.migrated_on(self.disk)


@pytest.fixture
def on_small_disk(own_postgres: Postgres) -> Generator[SmallDiskPostgres, None, None]:
    with mounted(own_postgres.directory / "disk", "24m") as disk:
        yield SmallDiskPostgres(own_postgres, disk)
        own_postgres.stop(signal.SIGQUIT)


@pytest.mark.parametrize("place", ["on_small_disk"], indirect=True)
async def test_a_projector_whose_postgres_has_a_full_disk_continues_without_loss(
    projecting: Projecting,
    bus: JetStreamLog,
    connection: Connection,
    place: Place,
    on_small_disk: SmallDiskPostgres,
) -> None:
    reasons = await without_room(projecting, bus, connection, place, full(on_small_disk.disk))

    assert reasons
    assert all("No space left on device" in why for why in reasons)


# --- a stream that was trimmed past the position -----------------------------------------------


async def trim(connection: Connection, stream: Stream, left: int) -> int:
    """Trims like the broker does for a full stream; returns the first sequence that is left."""
    config = (await connection.api(f"STREAM.INFO.{stream}"))["config"]
    await connection.api(f"STREAM.UPDATE.{stream}", {**config, "max_msgs": left})
    return (await state_of(connection, stream)).first


async def test_a_stream_trimmed_past_the_position_is_refused_by_name_and_nothing_is_skipped(
    projecting: Projecting, bus: JetStreamLog, connection: Connection, place: Place
) -> None:
    sender = producer()
    async with projecting():
        await bus.publish([sender.stamp(power("n1", watts)) for watts in range(20)])
        await caught_up(connection, place)
    await bus.publish([sender.stamp(power("n1", watts)) for watts in range(30)])
    first = await trim(connection, Stream.TEL, left=10)

    async with projecting() as refused:
        with pytest.raises(ExceptionGroup) as caught:
            await asyncio.wait_for(refused, 60)

    [gap] = caught.value.exceptions
    assert first == 41
    assert str(gap) == (
        "JOULIE_TEL holds nothing at sequence 21; it goes on at 41. 20 fact(s) were removed "
        "before they were read, so reading stopped instead of skipping them. Restore the stream; "
        "or, from an archive that holds them, the database (`joulie archive restore`); or start "
        "from an empty data directory."
    )
    with History.of(place) as history:
        assert max(manifest.p_to for manifest in history.manifests()) == 20


@pytest.mark.drill
@pytest.mark.timeout(900)
async def test_a_hundred_kills_at_random_times_lose_nothing(
    start: Start, bus: JetStreamLog, connection: Connection, place: Place, broker: Embedded
) -> None:
    workload, rng = Workload(bus, seed=7), random.Random(7)
    for kill in range(100):
        victim = start()
        await workload.publish(rng.randrange(20, 60))
        await asyncio.sleep(rng.uniform(0, 0.4))
        if kill % 20 == 19:
            broker.kill()
            await broker.wait()
            await broker.start()
        victim.end()
    start()
    await caught_up(connection, place)

    await require_complete(connection, place)
