"""The ledger of energy, which follows the log in the same database, and what it has counted."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Generator, Mapping
from pathlib import Path

from simulated_components import Component, Surroundings
from simulated_database import DatabaseLink
from simulated_moves import archive_of
from sqlalchemy import Engine
from virtual_time import Process

from joulie_audit.archive.archived_facts import ArchivedFacts
from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.fact_source import ColumnSource, StreamFacts
from joulie_audit.archive.parts import Archive
from joulie_audit.ledger.component import FIRST_PAUSE_S
from joulie_audit.ledger.follow import NOT_READ, REST_S, LedgerFollower
from joulie_bus.core.backoff import Backoff
from joulie_projections.store.energy_table import EnergyTable
from joulie_projections.store.retrying import DatabaseExecutor

AT_LAST_MS = 2**62
LONGEST_PAUSE_S = 2.0  # so that it has come back at the end of a run
BEHIND_S = 10.0  # `joulie energy` reports a ledger that is further behind


class LedgerComponent(Component):
    async def body(self, process: Process) -> None:
        pauses, executor = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), DatabaseExecutor()
        with self.around.database.ledger(self.database_link) as engine:
            follower = LedgerFollower(EnergyTable(engine), executor)
            try:
                while True:
                    follower.reload()
                    with contextlib.suppress(*NOT_READ):
                        await self._follow(process, follower, engine, pauses)
                    await asyncio.sleep(pauses.failed())
            finally:
                executor.close()

    async def _follow(
        self, process: Process, follower: LedgerFollower, engine: Engine, pauses: Backoff
    ) -> None:
        """Until a pass fails."""
        async with contextlib.AsyncExitStack() as stack:
            streams: StreamFacts | None = None
            while True:
                _require_answers(engine)
                archive = _archive_in(self.around)
                with Sources(self.around.database.file, archive).reading() as history:
                    if streams is None:
                        opened = StreamFacts.on(self.log_of(process), history)
                        streams = await stack.enter_async_context(opened)
                    facts = _facts(archive, streams)
                    is_done = await follower.catch_up(history, facts)
                pauses.succeeded()
                if is_done:
                    await asyncio.sleep(REST_S)


def _require_answers(engine: Engine) -> None:
    """The history is read on a connection that no fault reaches."""
    with engine.begin():
        pass


def _archive_in(around: Surroundings) -> Path | None:
    place = archive_of(around)
    return place if place.exists() and Archive.of(place).facts else None


def _facts(archive: Path | None, streams: StreamFacts) -> ColumnSource:
    return streams if archive is None else ArchivedFacts(Archive.of(archive), streams)


@contextlib.contextmanager
def _table(around: Surroundings) -> Generator[EnergyTable, None, None]:
    with around.database.ledger(DatabaseLink(around.random_for("a look at the ledger"))) as engine:
        yield EnergyTable(engine)


def ledger_position(around: Surroundings) -> int:
    with _table(around) as table:
        state = table.load()
    return state.position if state else 0


def counted_uj(around: Surroundings) -> Mapping[str, int]:
    """The energy of each node in the ledger of the database."""
    counted = Counter[str]()
    with _table(around) as table:
        for interval in table.between(0, AT_LAST_MS, ("node",)).intervals:
            for each in interval.nodes:
                counted[each.node] += each.pods_uj + each.idle_uj
    return counted
