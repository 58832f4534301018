"""For tests, ours and our users': a real broker, and facts that say only what matters."""

import contextlib
import itertools
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from joulie_bus.embedded import Embedded
from joulie_bus.events import (
    AnyEvent,
    CapsSet,
    DrainingBegun,
    HardwareDiscovered,
    NodeSeen,
    PodAsk,
    PodBound,
    ProfileAssigned,
    TelemetrySampled,
)
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.streams import ensure
from joulie_bus.log import Record
from joulie_bus.producer import Producer
from joulie_bus.subjects import Stream, Subjects, stream_of

NOON = 1_900_000_000_000_000_000  # a fixed moment, in ns
SECOND = 1_000_000_000
CLUSTER = Subjects("test")


@contextlib.asynccontextmanager
async def running_broker(directory: Path) -> AsyncGenerator[Embedded, None]:
    """A real nats-server with our streams in it, gone at the end of the block."""
    broker = Embedded(directory)
    await broker.start()
    try:
        async with connected(broker) as connection:
            await ensure(connection, CLUSTER)
        yield broker
    finally:
        await broker.stop()


@contextlib.asynccontextmanager
async def connected(broker: Embedded, name: str = "test") -> AsyncGenerator[Connection, None]:
    connection = await Connection.open(broker.address, name)
    try:
        yield connection
    finally:
        await connection.close()


def noon(plus_s: float = 0.0) -> int:
    return NOON + int(plus_s * SECOND)


def producer(name: str = "tester", boot: str = "b1") -> Producer:
    """Its clock stands still at noon."""
    return Producer(name, CLUSTER, lambda: NOON, boot)


def records(
    *events: AnyEvent, name: str = "tester", start_s: float = 0.0, step_s: float = 1.0
) -> list[Record]:
    """The events as their streams would hold them, stored one step after the other."""
    says = producer(name)
    numbers: dict[Stream, Callable[[], int]] = {}
    made = []
    for number, event in enumerate(events):
        stream = stream_of(event)
        count = numbers.setdefault(stream, itertools.count(1).__next__)
        at = noon(start_s + number * step_s)
        made.append(Record(stream, count(), at, says.stamp(event).data))
    return made


def power(node: str, watts: float) -> TelemetrySampled:
    return TelemetrySampled(node=node, power_mw=round(watts * 1000))


def node_seen(node: str, *, cores: int = 96, gpus: int = 0, **labels: str) -> NodeSeen:
    """Managed, ready, schedulable; `power_profile="eco"` is the label joulie.io/power-profile."""
    return NodeSeen(
        node=node,
        uid=f"uid-{node}",
        labels={"joulie.io/managed": "true"}
        | {f"joulie.io/{key.replace('_', '-')}": value for key, value in labels.items()},
        cpu_milli=cores * 1000,
        gpus=gpus,
    )


def hardware(node: str, *, cores: int = 96, watts: int = 720, gpus: int = 0) -> HardwareDiscovered:
    """One socket; GPUs of 700 W."""
    return HardwareDiscovered(
        node=node,
        cpu_model="AMD EPYC 9654",
        cpu_sockets=1,
        cpu_cores=cores,
        cpu_max_mw_per_socket=watts * 1000,
        gpu_model="NVIDIA H100 SXM5" if gpus else "",
        gpu_count=gpus,
        gpu_max_mw=700_000 if gpus else 0,
    )


def ask(
    uid: str = "pod-1", *, performance: bool = False, cores: float = 1, gpus: float = 0
) -> PodAsk:
    return PodAsk(
        uid=uid,
        namespace="team",
        name=uid,
        workload="performance" if performance else "standard",
        rule="annotation",
        cpu_milli=round(cores * 1000),
        gpu_milli=round(gpus * 1000),
    )


def bound(uid: str, node: str, *, performance: bool = False) -> PodBound:
    return PodBound(pod=ask(uid, performance=performance), node=node)


def eco(node: str) -> ProfileAssigned:
    return ProfileAssigned(plan="p", node=node, profile="eco")


def performance(node: str) -> ProfileAssigned:
    return ProfileAssigned(plan="p", node=node, profile="performance")


def draining(node: str) -> DrainingBegun:
    return DrainingBegun(plan="p", node=node, performance_pods=1)


def caps(node: str, cpu: int | None = None, gpu: int | None = None) -> CapsSet:
    return CapsSet(plan="p", node=node, cpu_cap_pct=cpu, gpu_cap_pct=gpu)
