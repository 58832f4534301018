"""Readings of 1,000 agents, published evenly by another process, and when a view has them."""

import asyncio
import multiprocessing
import time
from itertools import pairwise
from multiprocessing.connection import Connection as PipeEnd
from typing import NamedTuple

from bus_kit import CLUSTER, power
from joulie_bus.jetstream.connection import Address
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.producer import Producer
from joulie_bus.runtime import logging
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import agent_name
from joulie_projections.view.view import View

NODES = 1000
APART = multiprocessing.get_context("spawn")
TICK_S = 0.001


class Fresh(NamedTuple):
    p50_ms: float
    p99_ms: float


def messages(count: int, boot: str) -> list[Message]:
    """One producer per node, like agents."""
    says = [Producer(agent_name(f"node-{n}"), CLUSTER, time.time_ns, boot) for n in range(NODES)]
    return [says[k % NODES].stamp(power(f"node-{k % NODES}", 300 + k % 50)) for k in range(count)]


def agents(address: Address, seconds: float, rate: int, moments: PipeEnd) -> None:
    """Publishes evenly in a process of its own, and sends the time of each publish."""
    logging.configure("warning", "console", "bench")
    readings = messages(int(rate * seconds), f"fresh-{time.time_ns()}")

    async def send() -> list[float]:
        sent: list[float] = []
        per_tick, started = max(1, int(rate * TICK_S)), time.perf_counter()
        async with JetStreamLog.open(address, "agents") as bus, asyncio.TaskGroup() as sending:
            for tick, at in enumerate(range(0, len(readings), per_tick), 1):
                part = readings[at : at + per_tick]
                sent.extend([time.perf_counter()] * len(part))
                sending.create_task(bus.publish(part))
                await asyncio.sleep(
                    max(0.0, started + tick * per_tick / rate - time.perf_counter())
                )
        return sent

    moments.send(asyncio.run(send()))


async def freshness(address: Address, view: View, seconds: float, rate: int) -> Fresh:
    """The delay from the publish of an event until the view holds it."""
    here, there = APART.Pipe(duplex=False)
    process = APART.Process(target=agents, args=(address, seconds, rate, there), daemon=True)
    process.start()
    first, seen = view.position, [view.position]
    moments: list[float] = []
    while seen[-1] < first + int(rate * seconds):
        await view.wait_for(seen[-1] + 1, 20)
        moments.append(time.perf_counter())
        seen.append(view.position)
    sent = await asyncio.to_thread(here.recv)
    process.join()
    held = zip(pairwise(seen), moments, strict=True)
    ages = sorted(at - it for (a, b), at in held for it in sent[a - first : b - first])
    return Fresh(ages[len(ages) // 2] * 1000, ages[len(ages) * 99 // 100] * 1000)
