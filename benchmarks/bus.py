"""Compares the cost of Joulie's publisher and reader with plain nats-py, on one broker, in one run.

    make bench NAME=bus [ARGS="--messages 20000"]

It uses two brokers: one that syncs rarely, so that the clients dominate, and Joulie's, whose
acknowledgement means "on the disk", so that the disk dominates. CPU is that of this process, per
message.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import nats
from durable_brokers import lazy_broker
from nats.aio.client import Client
from report import Table

from bus_kit import CLUSTER, power, producer
from joulie_bus.broker.embedded import Embedded
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.jetstream.direct import DirectReader
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.jetstream.reader import ConsumerReader
from joulie_bus.jetstream.streams import ensure, state_of
from joulie_bus.streams.records import Message
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream

SMALLEST = {"messages": 2000}


class Cost(NamedTuple):
    per_s: float
    cpu_us: float


async def cost(count: int, work: Callable[[], Awaitable[None]]) -> Cost:
    started, cpu = time.perf_counter(), time.process_time()
    await work()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    return Cost(count / seconds, cpu / count * 1e6)


def stamped(count: int, boot: str) -> list[Message]:
    says = producer("bench", boot)
    return [says.stamp(power(f"node-{number % 1000}", 300)) for number in range(count)]


async def measure(address: Address, count: int) -> dict[str, Cost]:
    """Each publisher sends its own messages; each reader reads all of them."""
    few = max(200, count // 10)  # awaiting each acknowledgement is slow, so fewer are enough
    plain = await nats.connect(address.url, user=address.user, password=address.password)
    ours = await Connection.open(address, "bench")
    await ensure(ours, CLUSTER)
    found = {
        "publish, nats-py, awaited one by one": await cost(
            few, lambda: one_by_one(plain, stamped(few, "a"))
        ),
    }
    messages = stamped(count, "b")
    async with Publisher.on(ours) as publisher:
        found["publish, ours"] = await cost(count, lambda: publisher.publish(messages))
    total = count + few
    found["pull, nats-py, fetch(500)"] = await cost(total, lambda: fetched(plain, total))
    found["pull, ours"] = await cost(total, lambda: read(ours, total))
    await plain.close()
    await ours.close()
    return found


async def measure_across(broker: Embedded, count: int) -> dict[str, Cost]:
    """The same from accounts of their own: a writer by imports, a reader by direct gets."""
    writer = await Connection.open(broker.address_of(Role.SIMULATOR), "bench")
    reader = await Connection.open(broker.address_of(Role.AUDITOR), "bench")
    before = (await state_of(reader, Stream.TEL)).last
    messages = stamped(count, "c")
    async with Publisher.on(writer) as publisher:
        publishing = await cost(count, lambda: publisher.publish(messages))
    total = before + count
    reading = await cost(total, lambda: read(reader, total, DirectReader))
    await writer.close()
    await reader.close()
    return {"publish, ours, by imports": publishing, "pull, ours, by direct gets": reading}


async def one_by_one(client: Client, messages: list[Message]) -> None:
    stream = client.jetstream()
    for message in messages:
        await stream.publish(message.subject, message.data, headers={"Nats-Msg-Id": message.id})


async def fetched(client: Client, count: int) -> None:
    stream = client.jetstream()
    subscription = await stream.pull_subscribe("", durable="bench", stream=str(Stream.TEL))
    taken = 0
    while taken < count:
        messages = await subscription.fetch(min(500, count - taken), timeout=5)
        taken += len(messages)
        for message in messages:
            await message.ack()


async def read(
    connection: Connection,
    count: int,
    kind: type[ConsumerReader] | type[DirectReader] = ConsumerReader,
) -> None:
    wakeup = asyncio.Event()
    async with kind.on(connection, Stream.TEL, 0, wakeup=wakeup) as reader:
        taken = 0
        while taken < count:
            await wakeup.wait()
            wakeup.clear()
            taken += len(reader.take(count))


async def run(count: int) -> dict[str, dict[str, Cost]]:
    with tempfile.TemporaryDirectory() as lazy, tempfile.TemporaryDirectory() as durable:
        async with lazy_broker(Path(lazy)) as address:
            relaxed = await measure(address, count)
        broker = Embedded(Path(durable))
        await broker.start()
        synced = await measure(broker.address_of(Role.ADMIN), min(count, 5000))
        synced |= await measure_across(broker, count)
        await broker.stop()
    return {"broker that syncs every two minutes": relaxed, "ours, every message on disk": synced}


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", type=int, default=20_000)


def measured(args: argparse.Namespace) -> list[Table]:
    found = asyncio.run(run(args.messages))
    tables = [
        Table(
            title=broker,
            rows={
                name: {"/s": each.per_s, "CPU µs each": each.cpu_us} for name, each in costs.items()
            },
        )
        for broker, costs in found.items()
    ]
    return [*tables, Table(title="beside nats-py", rows={b: ratios(c) for b, c in found.items()})]


def ratios(costs: dict[str, Cost]) -> dict[str, float]:
    return {
        "publish": ratio(costs, "publish, ours", "publish, nats-py, awaited one by one"),
        "pull": ratio(costs, "pull, ours", "pull, nats-py, fetch(500)"),
    }


def ratio(costs: dict[str, Cost], ours: str, theirs: str) -> float:
    return costs[ours].per_s / costs[theirs].per_s
