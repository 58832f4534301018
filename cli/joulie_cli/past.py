"""What the commands that look back have in common: a moment of the log, and where its facts are."""

import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

import joulie_migrations
from joulie_audit.archive import Archive, ArchivedFacts
from joulie_audit.facts import Facts, StreamFacts
from joulie_bus.embedded import Embedded
from joulie_bus.errors import NotInTheLog
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.records import Record
from joulie_bus.roles import Role
from joulie_bus.subjects import MERGE_ORDER, Stream
from joulie_cli.supervisor import made_ready
from joulie_cli.wiring import Wiring, connected
from joulie_projections import database
from joulie_projections.history import History
from joulie_projections.manifest import Manifest

MANY = 5_000  # decisions; below that other processes cost more than they bring
Tell = Callable[[int, int], None]


@contextlib.asynccontextmanager
async def broker_of(wires: Wiring) -> AsyncGenerator[JetStreamLog, None]:
    """If nothing runs in the directory, its broker is started for as long as it is needed."""
    if wires.data.running() is not None or not (wires.data.path / "nats").exists():
        async with connected(wires, Role.AUDITOR) as bus:
            yield bus
        return
    hold = wires.data.hold()
    broker = Embedded(wires.data.path)
    try:
        await broker.start()
        await made_ready(broker, wires.subjects)
        async with JetStreamLog.open(broker.address_of(Role.AUDITOR), "joulie-audit") as bus:
            yield bus
    finally:
        await broker.stop()
        hold.release()


@contextlib.contextmanager
def history_of(wires: Wiring) -> Generator[History, None, None]:
    """One moment of the database, if it is one that this code can read."""
    wires.data.require()
    engine = database.reader(wires.data.database)
    try:
        joulie_migrations.require(engine)
    finally:
        engine.dispose()
    with History.of(wires.data.database) as history:
        yield history


@contextlib.asynccontextmanager
async def facts_of(
    wires: Wiring, archive: Path | None
) -> AsyncGenerator[tuple[History, Facts], None]:
    async with contextlib.AsyncExitStack() as stack:
        history = stack.enter_context(history_of(wires))

        async def streams() -> Facts:
            bus = await stack.enter_async_context(broker_of(wires))
            return await stack.enter_async_context(StreamFacts.on(bus, history))

        facts = LazyFacts(streams)
        yield history, facts if archive is None else ArchivedFacts(Archive.of(archive), facts)


class LazyFacts:
    """No broker is asked, or started, before somebody wants a fact."""

    def __init__(self, opened: Callable[[], Awaitable[Facts]]) -> None:
        self._opened = opened
        self._facts: Facts | None = None

    async def of(
        self, manifest: Manifest, streams: frozenset[Stream] = frozenset(MERGE_ORDER)
    ) -> list[Record]:
        if self._facts is None:
            self._facts = await self._opened()
        return await self._facts.of(manifest, streams)


@contextlib.contextmanager
def progress(what: str, quiet: bool) -> Generator[Tell | None, None, None]:
    """A bar for people at a terminal; it goes away when it is done."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def jobs_of(wanted: int, history: History) -> int:
    """As many processes as were asked for (0: as many as pay)."""
    if wanted:
        return wanted
    return (os.cpu_count() or 1) if history.count_answers() > MANY else 1


def require_facts(history: History) -> int:
    """The newest position; an empty log is told as one."""
    checkpoint = history.checkpoint()
    if checkpoint is None or not checkpoint.position:
        raise NotInTheLog(
            "The log is empty: no fact has been committed yet. `joulie status` shows what runs; "
            "`joulie demo` fills a log in seconds."
        )
    return checkpoint.position
