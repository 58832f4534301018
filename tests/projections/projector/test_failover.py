"""A failover of PostgreSQL to a standby, also to one that lagged."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import make_url

from bus_kit import CLUSTER, noon, one_of_each, power, producer, records
from joulie_bus.errors import DatabasePromoted, DatabaseSetBack, Fenced
from joulie_bus.events import Fact, FilterDecided, StateSetBack
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.entry import FIRST_PREV, chain_hash
from joulie_projections.decision_log.heads import Signer
from joulie_projections.fold.sequence import FoldCursor, sequence
from joulie_projections.history.history import History, StoredEntry
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.state.rows import cluster_state_of
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.retrying import TRANSIENT
from joulie_projections.store.store import Store
from projections_kit import Postgres

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
SETTINGS = ProjectorSettings(batch=20, lease_s=0.4, outcome_grace_s=0.2)
CREATED = dict.fromkeys(Stream, "then")
T = TypeVar("T")
[ANSWER] = [event for event in one_of_each() if isinstance(event, FilterDecided)]


@pytest.fixture(scope="module")
def primary() -> Generator[Postgres, None, None]:
    with Postgres.running() as server:
        yield server


def both_of(primary: Postgres, standby: Postgres, url: str) -> str:
    name, hosts = make_url(url).database, f"{primary.directory},{standby.directory}"
    return f"postgresql://owner@/{name}?host={hosts}&target_session_attrs=read-write"


@contextlib.contextmanager
def store_on(place: Place) -> Generator[Store, None, None]:
    engine = database.writer(place)
    try:
        yield Store(engine)
    finally:
        engine.dispose()


def lead(store: Store) -> int:
    """The epoch of a lease that has expired already."""
    held = store.acquire("a projector", 0.0, "first", lambda _: False)
    assert held is not None
    return held.epoch


def commit(store: Store, epoch: int, *facts: Fact) -> None:
    """What follows the state of the database, which a lost connection may not show at first."""
    held, rows = retried(store.load)
    assert held is not None
    cursor = FoldCursor(held.position, held.inputs, held.digests, held.head)
    read = records(*facts, name=f"after-{held.position}")
    made = sequence(cluster_state_of(rows), cursor, read, CREATED, noon())
    retried(lambda: store.commit(epoch, made.commit))


def retried(call: Callable[[], T]) -> T:
    while True:
        with contextlib.suppress(*TRANSIENT):
            return call()


class Servers:
    """A primary, its standby, and the projectors that a supervisor starts again."""

    def __init__(self, primary: Postgres, standby: Postgres, url: str, bus: JetStreamLog) -> None:
        self.primary, self.standby = primary, standby
        self._name = make_url(url).database or ""
        self.both = both_of(primary, standby, url)
        self.ends: list[BaseException] = []  # why projectors ended
        self._bus, self._sender = bus, producer()

    async def project(self, key: Path) -> None:
        while True:
            engine = database.writer(self.both)
            try:
                signer = Signer.of(key)
                await Projector(self._bus, CLUSTER, engine, signer, SETTINGS).run()
            except* Fenced as error:
                self.ends.extend(error.exceptions)
            finally:
                engine.dispose()

    async def publish(self, facts: int, answers: int) -> None:
        for number in range(facts):
            await self._bus.publish([self._sender.stamp(power("a", number))])
        await self._bus.publish([self._sender.stamp(ANSWER) for _ in range(answers)])

    async def until(self, place: Place, facts: int, answers: int) -> None:
        while await asyncio.to_thread(reached, place) != (facts, answers):
            await asyncio.sleep(0.05)

    def of(self, server: Postgres) -> str:
        return server.url(self._name)

    async def fail_over(self) -> None:
        self.primary.stop()
        await asyncio.to_thread(self.standby.promote)


def reached(place: Place) -> tuple[int, int]:
    with contextlib.suppress(Exception), History.of(place) as history:
        held = history.checkpoint()
        return held.position if held else 0, history.tip()
    return -1, -1


@pytest.fixture
async def servers(
    bus: JetStreamLog, primary: Postgres, tmp_path: Path
) -> AsyncGenerator[Servers, None]:
    url = primary.migrated()
    with primary.standby() as standby:
        servers = Servers(primary, standby, url, bus)
        supervisor = asyncio.create_task(servers.project(tmp_path / "signing.key"))
        try:
            async with asyncio.timeout(60):
                yield servers
                assert not supervisor.done()
        finally:
            supervisor.cancel()
            await asyncio.wait([supervisor])
    primary.start()


def require_chained(entries: list[StoredEntry], count: int) -> None:
    assert [entry.pos for entry in entries] == list(range(1, count + 1))
    assert len({entry.event_id for entry in entries}) == count
    prev = FIRST_PREV
    for entry in entries:
        assert (entry.prev, entry.hash) == (prev, chain_hash(prev, entry.body))
        prev = entry.hash


def entries_of(place: Place) -> list[StoredEntry]:
    with History.of(place) as history:
        return list(history.entries())


@pytest.mark.long
async def test_a_failover_to_a_standby_that_lagged_loses_no_decision(servers: Servers) -> None:
    await servers.publish(facts=0, answers=20)
    await servers.until(servers.of(servers.standby), 0, 20)
    servers.standby.cut_off()
    await servers.publish(facts=0, answers=20)
    await servers.until(servers.of(servers.primary), 0, 40)
    before = entries_of(servers.of(servers.primary))

    await servers.fail_over()
    await servers.publish(facts=0, answers=20)
    await servers.until(servers.both, 0, 61)  # one of them records that state was lost

    after = entries_of(servers.both)
    require_chained(after, 61)
    assert after[:40] == before  # read again, they have the same hashes
    assert [type(error) for error in servers.ends] == [DatabaseSetBack]


async def test_a_projector_without_work_ends_after_a_failover_that_took_its_commits_back(
    servers: Servers,
) -> None:
    await servers.publish(facts=1, answers=0)
    await servers.until(servers.of(servers.standby), 1, 0)
    servers.standby.cut_off()
    await servers.publish(facts=4, answers=0)
    await servers.until(servers.of(servers.primary), 5, 0)

    await servers.fail_over()
    await servers.until(servers.both, 5, 1)

    [lost] = entries_of(servers.both)
    assert lost.kind == StateSetBack.TYPE
    assert [type(error) for error in servers.ends] == [DatabaseSetBack]


async def test_a_failover_to_a_standby_with_everything_ends_no_projector(
    servers: Servers,
) -> None:
    await servers.publish(facts=5, answers=20)
    await servers.until(servers.of(servers.standby), 5, 20)

    await servers.fail_over()
    await servers.publish(facts=5, answers=20)
    await servers.until(servers.both, 10, 41)

    entries = entries_of(servers.both)
    require_chained(entries, 41)
    assert [each.kind for each in entries].count(StateSetBack.TYPE) == 1  # no projector knows more
    assert servers.ends == []


def test_a_failover_that_takes_the_lease_of_another_back_is_noticed(primary: Postgres) -> None:
    """As by a projector that was frozen while the other one led: the rows are its own again."""
    url = primary.migrated()
    with primary.standby() as standby, store_on(both_of(primary, standby, url)) as ours:
        epoch = lead(ours)
        assert not ours.was_promoted(epoch)
        commit(ours, epoch, power("a", 1))
        of_standby = standby.url(make_url(url).database or "")
        while reached(of_standby) != (1, 0):
            time.sleep(0.05)
        standby.cut_off()
        with store_on(url) as other:
            commit(other, lead(other), power("a", 2))
        primary.stop()
        standby.promote()

        with pytest.raises(DatabasePromoted):
            commit(ours, epoch, power("a", 3))
        assert reached(of_standby) == (1, 0)
        ours.reset_incarnation(epoch, 1, "second")
        commit(ours, epoch, power("a", 3))
        assert reached(of_standby) == (2, 0)
    primary.start()
