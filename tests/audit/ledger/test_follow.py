"""The ledger follows the log: no failure loses what was folded, and none loses energy."""

import asyncio
import contextlib
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import Engine, event

from audit_kit import RecordedLog
from bus_kit import ask, card, hardware, node_seen, power
from bus_kit.memory_broker import MemoryLog, MemoryReader
from bus_kit.pods import bound
from joulie_audit.archive.fact_source import StreamFacts
from joulie_audit.ledger.follow import LedgerFollower
from joulie_audit.ledger.refold import refolded
from joulie_bus.errors import NotInTheLog
from joulie_bus.events import PodBound, PodFinished, TelemetrySampled
from joulie_bus.runtime import metrics
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.energy.saved import LedgerState
from joulie_projections.fold.manifest import Manifest
from joulie_projections.store import database
from joulie_projections.store.energy_table import EnergyTable
from joulie_projections.store.retrying import DatabaseExecutor

pytestmark = pytest.mark.anyio
READINGS, STEP_S = 30, 30.0  # 2 minutes over the end of an hour: intervals end
PATIENCE_S = 120.0


@pytest.fixture
async def log(any_database: RecordedLog) -> RecordedLog:
    made = any_database.builder
    await made.facts(node_seen("n1"), bound("a", "n1"))
    for at in range(READINGS):
        await made.facts(power("n1", 100 + at), after_s=STEP_S)
    return any_database


@pytest.fixture
def engine(log: RecordedLog) -> Iterator[Engine]:
    made = database.ledger(log.database)
    yield made
    made.dispose()


@pytest.fixture
def executor() -> Iterator[DatabaseExecutor]:
    made = DatabaseExecutor()
    yield made
    made.close()


class Failing(StreamFacts):
    """Reads a few batches, and no more."""

    left = 0

    async def of(
        self, manifest: Manifest, streams: frozenset[Stream] = frozenset(MERGE_ORDER)
    ) -> list[Record]:
        if not self.left:
            raise NotInTheLog("no message arrived")
        self.left -= 1
        return await super().of(manifest, streams)


async def one_pass(log: RecordedLog, follower: LedgerFollower, most: int) -> bool:
    """As after a lost connection: with new readers, which stop after `most` batches."""
    async with log.reading() as (history, _), Failing.on(log.builder.bus, history) as facts:
        assert isinstance(facts, Failing)
        facts.left = most
        return await follower.catch_up(history, facts)


async def test_a_pass_that_fails_keeps_what_it_has_folded(
    log: RecordedLog, engine: Engine, executor: DatabaseExecutor
) -> None:
    table = EnergyTable(engine)
    follower = LedgerFollower(table, executor)

    with pytest.raises(NotInTheLog):
        await one_pass(log, follower, 20)

    reached = table.load()
    assert reached is not None
    assert 20 <= reached.position < log.builder.position


async def test_passes_that_fail_and_restarts_give_the_ledger_of_one_pass(
    log: RecordedLog, engine: Engine, executor: DatabaseExecutor
) -> None:
    table, done, most = EnergyTable(engine), False, 0
    while not done:
        most = most % 17 + 1
        follower = LedgerFollower(table, executor)  # of a new process
        try:
            done = await one_pass(log, follower, most)
        except NotInTheLog:
            continue

    state = table.load()
    assert state is not None
    assert state.position == log.builder.position
    async with log.reading() as (history, facts), refolded(history, facts, 10**9) as expected:
        whole = expected.load()
        assert whole is not None
        assert state.packed() == whole.packed()
        assert table.between(0, 2**62, ("node",)) == expected.between(0, 2**62, ("node",))


async def test_a_locked_database_is_waited_for_and_no_interval_is_lost(
    recorded: RecordedLog, engine_of_one_file: Engine, executor: DatabaseExecutor
) -> None:
    made, table = recorded.builder, EnergyTable(engine_of_one_file)
    follower, refusals = LedgerFollower(table, executor), retries()
    for at in range(READINGS):
        await made.facts(power("n1", 100 + at), after_s=STEP_S)
        if not at:
            assert await one_pass(recorded, follower, 1)
    locker = sqlite3.connect(database.ledger_file(recorded.database), isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")

    async with recorded.reading() as (history, facts), asyncio.timeout(PATIENCE_S):
        pass_ = asyncio.create_task(follower.catch_up(history, facts))
        while retries() == refusals:
            await asyncio.sleep(0.01)
        locker.rollback()
        assert await pass_

    locker.close()
    hours = [each for each in table.between(0, 2**62, ("node", "pod"))[0] if each.grain == "hour"]
    assert sum(row.idle_uj for each in hours for row in each.nodes) == expected_uj()


@pytest.fixture
def engine_of_one_file(recorded: RecordedLog) -> Iterator[Engine]:
    """It does not wait for locks."""
    made = database.ledger(recorded.database)

    @event.listens_for(made, "connect")
    def connected(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA busy_timeout = 0")

    yield made
    made.dispose()


def retries() -> float:
    return float(metrics.DATABASE_RETRIES._value.get())


def expected_uj() -> int:
    watts = [100 + at for at in range(READINGS)]
    return sum((a + b) * 500 * round(STEP_S * 1000) for a, b in pairwise(watts))


async def test_a_jump_in_a_stream_closes_the_former_reader(log: RecordedLog) -> None:
    open_now = Counter[Stream]()

    class Counting(MemoryLog):
        @contextlib.asynccontextmanager
        async def reading(
            self, stream: Stream, *args: Any, **kwargs: Any
        ) -> AsyncGenerator[MemoryReader, None]:
            open_now[stream] += 1
            async with super().reading(stream, *args, **kwargs) as reader:
                yield reader
            open_now[stream] -= 1

    bus = Counting(log.builder.broker)
    async with log.reading() as (history, _), StreamFacts.on(bus, history) as facts:
        for manifest in list(history.manifests())[::3]:
            assert await facts.of(manifest)
        assert set(open_now.values()) == {1}

    assert set(open_now.values()) == {0}


async def test_the_lag_in_seconds_grows_until_every_committed_fact_is_folded(
    log: RecordedLog, engine: Engine, executor: DatabaseExecutor
) -> None:
    follower = LedgerFollower(EnergyTable(engine), executor)
    follower._complete_at -= 100

    with pytest.raises(NotInTheLog):
        await one_pass(log, follower, 3)
    behind = lag_s()
    await one_pass(log, follower, 10**6)

    assert behind >= 100 > lag_s()


def lag_s() -> float:
    (found,) = metrics.LEDGER_LAG_SECONDS.collect()
    return found.samples[0].value


async def test_a_ledger_that_starts_knows_no_power_before_it_folds_a_reading(
    log: RecordedLog, engine: Engine, executor: DatabaseExecutor
) -> None:
    await one_pass(log, LedgerFollower(EnergyTable(engine), executor), 10**6)
    assert watts() == 100 + READINGS - 1

    started = LedgerFollower(EnergyTable(engine), executor)
    await one_pass(log, started, 10**6)
    assert watts() is None

    await log.builder.facts(power("n1", 7), after_s=STEP_S)
    await one_pass(log, started, 10**6)
    assert watts() == 7


def watts() -> float | None:
    return metrics.LEDGER.get_sample_value("joulie_power_watts")


async def test_a_ledger_that_is_ahead_of_its_log_is_folded_again_from_the_first_fact(
    log: RecordedLog, engine: Engine, executor: DatabaseExecutor
) -> None:
    """The file of the ledger stayed when the log was restored, or replaced by another one."""
    table, other = EnergyTable(engine), LedgerState()
    other.position = 10**6
    table.save(0, other)

    await one_pass(log, LedgerFollower(table, executor), 10**6)

    state = table.load()
    assert state is not None
    assert state.position == log.builder.position
    assert state.ledger.newest_ms > 0


def quiet() -> TelemetrySampled:
    """At the power of a process that does nothing: the cards of the node have 700 W."""
    return TelemetrySampled(node="n1", power_mw=500_000, card_mw={"g1": 125_000})


async def test_cards_that_are_held_without_work_are_kept_with_the_ledger(
    log: RecordedLog, engine: Engine, executor: DatabaseExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, table = log.builder, EnergyTable(engine)
    at = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: at[0])
    holder = PodBound(pod=ask("idler", gpus=1), node="n1")
    await made.facts(hardware("n1", gpus=1), card("g1"), holder)
    for _ in range(4):
        await made.facts(quiet(), after_s=STEP_S)
    follower = LedgerFollower(table, executor, idle_after_s=3 * STEP_S)

    async with log.reading() as (history, facts):
        assert await follower.catch_up(history, facts)
    (held,) = table.holders()
    assert (held.node, held.card, held.pods) == ("n1", "g1", ("team/idler",))

    at[0] = 61.0  # and no reading has come since
    async with log.reading() as (history, facts):
        assert await follower.catch_up(history, facts)
    assert table.holders() == []
    await made.facts(quiet(), after_s=STEP_S)
    async with log.reading() as (history, facts):
        assert await follower.catch_up(history, facts)
    assert len(table.holders()) == 1

    await made.facts(PodFinished(uid="idler"))
    async with log.reading() as (history, facts):
        assert await follower.catch_up(history, facts)
    assert table.holders() == []
