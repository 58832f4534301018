"""Access to the history and its facts, for the commands that read the log."""

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from joulie_audit.archive.archived_facts import ArchivedFacts
from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.fact_source import FactSource, RetainedFacts, StreamFacts
from joulie_audit.archive.parts import Archive, is_archive
from joulie_audit.chain.entries import WorkerOptions
from joulie_audit.replay.replay import WorkerSource
from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import EMPTY, DataDirectoryError, NotInTheLog
from joulie_bus.jetstream.connection import Address
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import prepare_streams
from joulie_bus.runtime.settings import setting, text
from joulie_bus.streams.records import Record
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.component.connecting import address_of, connected
from joulie_projections.component.data_directory import DirectoryLock
from joulie_projections.component.opening import require_readable
from joulie_projections.component.wiring import Wiring
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import NEWEST, History

# Work per process: with less, starting the process (about a second) takes longer than it saves.
MANY_DECISIONS = 10_000
MANY_EVENTS = 500_000
MANY_ENTRIES = 300_000
WAIT_S = 0.2  # between two attempts to lock the directory
WAITING_FOR_LOCK = "Another command reads the facts in {}: waiting for it to end. Ctrl-C cancels."
CLIENT_NAME = "joulie-audit"


@dataclass(frozen=True, kw_only=True)
class ArchivePlace:
    directory: str = setting(
        text,
        "ARCHIVE_DIR",
        "",
        "The archive that `joulie up` writes and that commands read facts from first; "
        "empty for none",
    )


def archive_of(args: argparse.Namespace, wires: Wiring) -> Path | None:
    """The archive of the command line, otherwise that of the settings if it is not empty."""
    named: Path | None = args.archive
    return usual_archive(wires) if named is None else named


def usual_archive(wires: Wiring) -> Path | None:
    directory = wires.source.load(ArchivePlace).directory
    return Path(directory) if directory and is_archive(Path(directory)) else None


@contextlib.asynccontextmanager
async def broker_of(wires: Wiring, role: Role = Role.AUDITOR) -> AsyncGenerator[JetStreamLog, None]:
    """A connection; if nothing runs in the directory, its broker runs until the block ends."""
    if wires.data.running() is not None or not (wires.data.path / "nats").exists():
        async with connected(wires, role) as bus:
            yield bus
        return
    async with _address(wires, role) as address, JetStreamLog.open(address, CLIENT_NAME) as bus:
        yield bus


@contextlib.asynccontextmanager
async def _address(wires: Wiring, role: Role = Role.AUDITOR) -> AsyncGenerator[Address, None]:
    """The address of a broker with the facts, valid until the block ends."""
    async with own_broker(wires) as broker:
        yield address_of(wires, role) if broker is None else broker.address_of(role)


@contextlib.asynccontextmanager
async def own_broker(wires: Wiring) -> AsyncGenerator[Embedded | None, None]:
    """The broker of a data directory in which nothing runs, until the block ends; None if another
    command runs in it."""
    lock = await _locked(wires)
    if lock is None:
        yield None
        return
    broker = Embedded(wires.data.path, program=wires.data.broker)
    try:
        await broker.start()
        await prepare_streams(broker.address_of(Role.ADMIN), wires.subjects)
        yield broker
    finally:
        await broker.stop()
        lock.release()


async def _locked(wires: Wiring) -> DirectoryLock | None:
    """Lock the directory to start its broker; None if a broker runs or there is none to start.

    Waits while another command holds the lock: such a command ends by itself.
    """
    is_reported = False
    while wires.data.running() is None and (wires.data.path / "nats").exists():
        try:
            return wires.data.lock()
        except DataDirectoryError:
            if not is_reported:
                print(WAITING_FOR_LOCK.format(wires.data.path), file=sys.stderr, flush=True)
            is_reported = True
            await asyncio.sleep(WAIT_S)
    return None


@contextlib.contextmanager
def history_of(wires: Wiring, archive: Path | None = None) -> Generator[History, None, None]:
    """A snapshot of the database; `archive` holds its trimmed parts."""
    require_readable(wires.data)
    with Sources(wires.data.database, archive).reading() as history:
        yield history


@contextlib.asynccontextmanager
async def facts_of(
    wires: Wiring, archive: Path | None, role: Role = Role.AUDITOR
) -> AsyncGenerator[tuple[History, RetainedFacts], None]:
    async with contextlib.AsyncExitStack() as stack:
        history = stack.enter_context(history_of(wires, archive))

        async def streams() -> RetainedFacts:
            bus = await stack.enter_async_context(broker_of(wires, role))
            return await stack.enter_async_context(StreamFacts.on(bus, history))

        facts = LazyFacts(streams)
        yield history, facts if archive is None else ArchivedFacts(Archive.of(archive), facts)


@contextlib.asynccontextmanager
async def retained_facts_of(
    wires: Wiring, archive: Path | None
) -> AsyncGenerator[RetainedFacts, None]:
    """The facts that can still be read; those of the archive are all there."""
    async with facts_of(wires, archive) as (_, facts):
        yield facts


@contextlib.asynccontextmanager
async def shared_facts_of(
    wires: Wiring, archive: Path | None
) -> AsyncGenerator[tuple[History, FactSource, WorkerSource], None]:
    """For several processes: the broker starts first, unless the archive holds the facts."""
    async with contextlib.AsyncExitStack() as stack:
        history = stack.enter_context(history_of(wires, archive))
        kept = Archive.of(archive).facts if archive else []
        newest = history.checkpoint()
        is_kept = newest is not None and kept and kept[-1][1].last >= newest.position
        address = None if is_kept else await stack.enter_async_context(_address(wires))
        opener = FactsOpener(address, archive)
        facts = await stack.enter_async_context(opener(history))
        yield history, facts, WorkerSource(Sources(wires.data.database, archive), opener)


@dataclass(frozen=True)
class FactsOpener:
    """Opens the facts in another process; can be pickled."""

    address: Address | None
    archive: Path | None

    def __call__(self, history: History) -> AbstractAsyncContextManager[FactSource]:
        return self._facts(history)

    @contextlib.asynccontextmanager
    async def _facts(self, history: History) -> AsyncGenerator[FactSource, None]:
        async with contextlib.AsyncExitStack() as stack:

            async def streams() -> RetainedFacts:
                if self.address is None:
                    raise NotInTheLog(f"{self.archive} ends before the log. Try again.")
                opened = JetStreamLog.open(self.address, CLIENT_NAME)
                bus = await stack.enter_async_context(opened)
                return await stack.enter_async_context(StreamFacts.on(bus, history))

            facts = LazyFacts(streams)
            yield ArchivedFacts(Archive.of(self.archive), facts) if self.archive else facts


class LazyFacts:
    """Opens the facts at their first use: no broker is contacted or started before."""

    def __init__(self, opened: Callable[[], Awaitable[RetainedFacts]]) -> None:
        self._opened = opened
        self._facts: RetainedFacts | None = None

    async def of(
        self, manifest: Manifest, streams: frozenset[Stream] = frozenset(MERGE_ORDER)
    ) -> list[Record]:
        return await (await self._open()).of(manifest, streams)

    async def first_of(self, stream: Stream) -> int:
        return await (await self._open()).first_of(stream)

    async def _open(self) -> RetainedFacts:
        if self._facts is None:
            self._facts = await self._opened()
        return self._facts


def jobs_of(wanted: int, history: History) -> int:
    """The number of processes for a replay: `wanted`, or for 0 as many as are worthwhile."""
    if wanted:
        return wanted
    newest = history.checkpoint()
    events = newest.position if newest is not None else 0
    return worthwhile_jobs(events, history.count_answers(), os.cpu_count() or 1)


def worthwhile_jobs(events: int, decisions: int, cores: int) -> int:
    """The number of processes beyond which a replay of such a log gets no faster."""
    return _of_cores(cores, max(events // MANY_EVENTS, decisions // MANY_DECISIONS))


def sharing_of(wanted: int, wires: Wiring, entries: int) -> WorkerOptions:
    """How `entries` are hashed: by `wanted` processes, or for 0 by as many as are worthwhile."""
    worthwhile = _of_cores(os.cpu_count() or 1, entries // MANY_ENTRIES)
    return WorkerOptions(wires.data.database, wanted or worthwhile)


def _of_cores(cores: int, wanted: int) -> int:
    return max(1, min(cores, wanted))


def require_facts(history: History) -> int:
    """The newest position; raises NotInTheLog if the log is empty."""
    checkpoint = history.checkpoint()
    if checkpoint is None or not checkpoint.position:
        raise NotInTheLog(EMPTY)
    return checkpoint.position


def span_of(args: argparse.Namespace, newest: int, what: str) -> tuple[int, int]:
    """`--from-WHAT` and `--to-WHAT`. Raises NotInTheLog if nothing lies between them."""
    first, last = args.first, NEWEST if args.last is None else args.last
    if first > last:
        raise NotInTheLog(
            f"--from-{what} {first} is after --to-{what} {last}, so there is no {what} between "
            f"them. Nothing was checked. Give the smaller number to --from-{what}."
        )
    if first > newest and first > 1:
        raise NotInTheLog(
            f"There is no {what} {first}: the newest is {newest}. Nothing was checked. "
            f"Give --from-{what} 1 to {newest}."
        )
    return first, last
