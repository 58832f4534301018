"""Continues a log beside other streams: new ones after a loss, or a restored copy of its own."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import NotInTheLog, ProjectorRuns
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.streams import continue_after, ensure, identities, require
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream
from joulie_projections.component.connecting import address_of, names_a_broker
from joulie_projections.component.wiring import Wiring
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.fold.commit import Checkpoint, Inputs
from joulie_projections.store import database
from joulie_projections.store.lease_owner import is_gone, new_owner
from joulie_projections.store.store import Store

Ends = dict[Stream, int]
Created = dict[Stream, str]  # the identity of each stream
Identify = Callable[[Wiring, Connection, Inputs], Awaitable[Created]]
LEASE_S = 60.0
WAIT_S = 10.0  # for the lease of a projector that was killed elsewhere
RETRY_S = 0.2


async def continue_streams(wires: Wiring) -> Ends:
    """Beside an empty broker, after the streams were lost; the sequence after which each continues.

    Streams first, then the database: after a crash in between, the same command completes it.
    """
    return await _continue(wires, _continue_behind)


async def adopt_streams(wires: Wiring) -> Ends:
    """With streams that were restored from a snapshot: they hold the same messages under new
    identities. Returns the sequence up to which each was read."""
    return await _continue(wires, _with_the_same_messages)


async def _continue(wires: Wiring, identify: Identify) -> Ends:
    engine = database.writer(wires.data.database)
    try:
        return await _identified(wires, Store(engine), DecisionLog(engine), identify)
    finally:
        engine.dispose()


async def _identified(wires: Wiring, store: Store, log: DecisionLog, identify: Identify) -> Ends:
    held = store.checkpoint()
    if held is None or not held.position:
        raise NotInTheLog("This database holds no facts, so there is nothing to continue.")
    async with _administered(wires) as connection:
        held = await leased(store)
        try:
            read = {**held.inputs, Stream.DEC: log.input()}
            created = await identify(wires, connection, read)
            store.continue_streams(held.epoch, created)
            log.continue_stream(held.epoch, created[Stream.DEC])
        finally:
            store.release(held.epoch)
    return {stream: each.sequence for stream, each in read.items()}


async def _continue_behind(wires: Wiring, connection: Connection, read: Inputs) -> Created:
    await ensure(connection, wires.subjects, wires.bus.nats_replicas)
    return await continue_after(
        connection, {stream: each.sequence for stream, each in read.items()}
    )


async def _with_the_same_messages(wires: Wiring, connection: Connection, read: Inputs) -> Created:
    await require(connection, wires.subjects)
    return await identities(
        connection, {stream: (each.sequence, each.digest) for stream, each in read.items()}
    )


async def leased(store: Store) -> Checkpoint:
    owner, deadline = new_owner(), time.monotonic() + WAIT_S
    while True:
        held = store.acquire(owner, LEASE_S, "", is_gone)
        if held is not None:
            return held
        if time.monotonic() >= deadline:
            raise ProjectorRuns(WAIT_S)
        await asyncio.sleep(RETRY_S)


@contextlib.asynccontextmanager
async def _administered(wires: Wiring) -> AsyncGenerator[Connection, None]:
    """The broker of the settings; else that of the data directory, which runs for this block."""
    async with contextlib.AsyncExitStack() as stack:
        if names_a_broker(wires):
            address = address_of(wires, Role.ADMIN)
        else:
            stack.callback(wires.data.lock().release)
            broker = Embedded(wires.data.path, program=wires.data.broker)
            await broker.start()
            stack.push_async_callback(broker.stop)
            address = broker.address_of(Role.ADMIN)
        connection = await Connection.open(address, "joulie-admin")
        stack.push_async_callback(connection.close)
        yield connection
