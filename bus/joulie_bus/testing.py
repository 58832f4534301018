"""For tests, ours and our users': a real broker, and facts that say only what matters."""

import asyncio
import contextlib
import itertools
import shutil
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from joulie_bus.broker.checksum import server_binary
from joulie_bus.broker.embedded import Embedded, Peer, environment, free_port
from joulie_bus.errors import Unreachable
from joulie_bus.events import (
    AnyEvent,
    Basis,
    BindDecided,
    Candidates,
    CapsSet,
    CardClaimed,
    ClaimConfirmed,
    ClaimReleased,
    DecisionsDropped,
    DrainingBegun,
    FacilityPolled,
    Fact,
    FallbackAnswered,
    FilterDecided,
    GpuGone,
    GpuSeen,
    HardwareDiscovered,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    OutcomeSeen,
    PlanMade,
    PodAsk,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
    PreemptDecided,
    PrioritizeDecided,
    Profile,
    ProfileAssigned,
    SettingsDeclared,
    SleepOrdered,
    TelemetrySampled,
    Terms,
    TransitionCompleted,
    WakeOrdered,
)
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.jetstream.reader import Reader
from joulie_bus.jetstream.streams import declaration, ensure, state_of
from joulie_bus.runtime import metrics
from joulie_bus.runtime.tasks import rung
from joulie_bus.streams.memory import MemoryBroker, MemoryLog
from joulie_bus.streams.producer import Producer
from joulie_bus.streams.records import Message, Record
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream, Subjects, stream_of

NOON = 1_900_000_000_000_000_000  # a fixed moment, in ns
SECOND = 1_000_000_000
CLUSTER = Subjects("test")


class VirtualClock:
    """Stands still until a test moves it; hours pass at once."""

    def __init__(self, now: int = NOON) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


def memory_log(clock: Callable[[], int] | None = None) -> MemoryLog:
    """A log of its own, in memory; `clock` is the broker's."""
    return MemoryLog(MemoryBroker(CLUSTER, clock or VirtualClock()))


@contextlib.asynccontextmanager
async def running_broker(directory: Path) -> AsyncGenerator[Embedded, None]:
    """A real nats-server with our streams in it, gone at the end of the block."""
    async with bare_broker(directory) as broker:
        async with connected(broker) as connection:
            await ensure(connection, CLUSTER)
        yield broker


@contextlib.asynccontextmanager
async def bare_broker(directory: Path) -> AsyncGenerator[Embedded, None]:
    """The same without a stream, for those who want one that may be trimmed, filled or lost."""
    broker = Embedded(directory)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@contextlib.asynccontextmanager
async def lazy_broker(directory: Path) -> AsyncGenerator[Address, None]:
    """Syncs its disk now and then, so that what is measured is behind it; with the streams."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(server_binary(), "-js", "-a", "127.0.0.1", "-p", str(port), "-sd", str(directory)),
        stderr=asyncio.subprocess.DEVNULL,
        env=environment(),
    )
    address = Address(url=f"nats://127.0.0.1:{port}")
    try:
        connection = await _once_it_answers(address)
        await ensure(connection, CLUSTER)
        await connection.close()
        yield address
    finally:
        process.terminate()
        await process.wait()


async def _once_it_answers(address: Address) -> Connection:
    while True:
        with contextlib.suppress(Unreachable):
            return await Connection.open(address, "bench", patience_s=1)
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def running_cluster(directory: Path) -> AsyncGenerator[dict[str, Embedded], None]:
    """Three nats-servers as one, by name, without a stream. They know each other's users."""
    routes = [free_port() for _ in range(3)]
    Embedded(directory / "all")  # whose passwords are everybody's
    servers = {}
    for number, port in enumerate(routes):
        place = directory / f"n{number}"
        shutil.copytree(directory / "all", place)
        servers[place.name] = Embedded(place, peer=Peer(place.name, port, routes))
    try:
        await asyncio.gather(*(server.start() for server in servers.values()))
        yield servers
    finally:
        await asyncio.gather(*(server.stop() for server in servers.values()))


@contextlib.asynccontextmanager
async def connected(
    broker: Embedded, name: str = "test", role: Role = Role.ADMIN
) -> AsyncGenerator[Connection, None]:
    connection = await Connection.open(broker.address_of(role), name)
    try:
        yield connection
    finally:
        await connection.close()


class Backup:
    """An embedded broker's streams as they were, for tests that set them back."""

    def __init__(self, broker: Embedded, directory: Path) -> None:
        self._broker = broker
        self._store, self._copy = directory / "nats", directory / "older"

    @classmethod
    async def of(cls, broker: Embedded, directory: Path) -> "Backup":
        """Taken while the broker is down for a moment; it runs again when this returns."""
        backup = cls(broker, directory)
        await broker.stop()
        shutil.copytree(backup._store, backup._copy)
        await broker.start()
        return backup

    async def set_back(self) -> None:
        """The broker begins again with the older state."""
        await self._broker.stop()
        shutil.rmtree(self._store)
        shutil.copytree(self._copy, self._store)
        await self._broker.start()


@contextlib.asynccontextmanager
async def full(connection: Connection, *streams: Stream) -> AsyncGenerator[None, None]:
    """Within the block the broker refuses every message to these streams: they have no room."""
    for stream in streams:
        held = (await connection.api(f"STREAM.INFO.{stream}"))["state"]["bytes"]
        limits = {"discard": "new", "max_bytes": held + 1}
        await connection.api(f"STREAM.UPDATE.{stream}", declaration(stream, CLUSTER) | limits)
    try:
        yield
    finally:
        for stream in streams:
            await connection.api(f"STREAM.UPDATE.{stream}", declaration(stream, CLUSTER))


def refusals(what: str) -> float:
    """How often the broker refused it so far."""
    return float(metrics.PUBLISH_REFUSED.labels(what=what)._value.get())


async def until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Returns once it holds; for what has no event of its own to wait for."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


async def stored(connection: Connection, stream: Stream) -> list[Record]:
    """Everything that a stream holds, in its order."""
    state, bell, found = await state_of(connection, stream), asyncio.Event(), list[Record]()
    after = max(0, state.first - 1)
    async with asyncio.timeout(30), Reader.on(connection, stream, after, bell=bell) as reader:
        while after + len(found) < state.last:
            await rung(bell, 1)
            found += reader.take(10_000)
    return found


def noon(plus_s: float = 0.0) -> int:
    return NOON + int(plus_s * SECOND)


def producer(name: str = "tester", boot: str = "b1") -> Producer:
    """Its clock stands still at noon."""
    return Producer(name, CLUSTER, lambda: NOON, boot)


class Voices:
    """A producer for each stream, as in a cluster. Who counted on through several streams would be
    heard out of turn where one is read ahead of another, and much of it taken for repeats.
    """

    def __init__(self, name: str, subjects: Subjects, clock: Callable[[], int]) -> None:
        self._of = {
            stream: Producer(f"{name}-{stream.rpartition('_')[2].lower()}", subjects, clock)
            for stream in Stream
        }

    def stamp(self, event: AnyEvent) -> Message:
        return self._of[stream_of(event)].stamp(event)


def records(
    *events: AnyEvent, name: str = "tester", start_s: float = 0.0, step_s: float = 1.0
) -> list[Record]:
    """The events as their streams would hold them, stored one step after the other.

    Each stream is counted by itself, as streams are read ahead of one another.
    """
    producers = {stream: producer(name) for stream in Stream}
    numbers: dict[Stream, Callable[[], int]] = {}
    made = []
    for number, event in enumerate(events):
        stream = stream_of(event)
        count = numbers.setdefault(stream, itertools.count(1).__next__)
        at = noon(start_s + number * step_s)
        message = producers[stream].stamp(event)
        made.append(Record(stream, count(), at, message.data, message.subject))
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


def decided(uid: str) -> FilterDecided:
    """An answer about no nodes."""
    return FilterDecided(
        pod=ask(uid),
        basis=Basis(view=0, view_age_ms=0, now=noon(), settings="s"),
        candidates=Candidates(ordinals=b""),
        verdicts=b"",
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


def pending(uid: str, *, performance: bool = False) -> PodPending:
    return PodPending(pod=ask(uid, performance=performance))


def completed(node: str, profile: Profile = "eco") -> TransitionCompleted:
    return TransitionCompleted(plan="p", node=node, profile=profile)


def asleep(node: str) -> SleepOrdered:
    return SleepOrdered(plan="p", node=node)


def waking(node: str) -> WakeOrdered:
    return WakeOrdered(plan="p", node=node)


def polled(*, ambient_c: float | None = None, it_w: float | None = None) -> FacilityPolled:
    """What is left out could not be read."""
    return FacilityPolled(
        facility="hall",
        ambient_mdeg=None if ambient_c is None else round(ambient_c * 1000),
        it_mw=None if it_w is None else round(it_w * 1000),
    )


def card(uuid: str, node: str = "n1", *, used_mb: int = 0) -> GpuSeen:
    return GpuSeen(
        uuid=uuid, node=node, model="NVIDIA H100 SXM5", total_mb=81_559, allocated_mb=used_mb
    )


def claim(uuid: str, uid: str, mb: int = 20_000, *, node: str = "n1") -> CardClaimed:
    """For a minute."""
    return CardClaimed(
        card=uuid, pod_uid=uid, namespace="team", name=uid, node=node, mb=mb, expires_s=60
    )


def confirmed(uuid: str, uid: str) -> ClaimConfirmed:
    return ClaimConfirmed(card=uuid, pod_uid=uid)


def released(uuid: str, uid: str) -> ClaimReleased:
    return ClaimReleased(card=uuid, pod_uid=uid, why="finished")


def plan_made(plan: str = "p") -> PlanMade:
    return PlanMade(plan=plan, policy="static_partition", view=0, nodes=0, performance=0, changes=0)


# Every kind of fact, about one of few nodes and pods, so that a handful of them meet.
_ANY: tuple[Callable[[str, str, int], Fact], ...] = (
    lambda node, _, number: power(node, number * 10),
    lambda node, _, number: node_seen(node, cores=number, gpus=number % 3, zone=str(number)),
    lambda node, _pod, _number: NodeGone(node=node),
    lambda node, _, number: hardware(node, cores=number, gpus=number % 9),
    lambda _node, _pod, number: polled(
        ambient_c=number if number % 2 else None, it_w=number if number % 3 else None
    ),
    lambda node, _, number: card(f"g{number % 3}", node, used_mb=number),
    lambda _node, _pod, number: GpuGone(uuid=f"g{number % 3}"),
    lambda node, _pod, number: NamespaceSeen(
        namespace=node, workload="performance" if number % 2 else None
    ),
    lambda _, pod, number: pending(pod, performance=number % 2 == 0),
    lambda node, pod, number: bound(pod, node, performance=number % 2 == 0),
    lambda _node, pod, _number: PodFinished(uid=pod),
    lambda _node, pod, _number: PodGone(uid=pod),
    lambda _node, _pod, number: plan_made(str(number)),
    lambda node, _, number: eco(node) if number % 2 else performance(node),
    lambda node, _pod, _number: draining(node),
    lambda node, _, number: caps(node, number, None if number % 2 else number),
    lambda node, _, number: completed(node, "eco" if number % 2 else "performance"),
    lambda node, _pod, _number: asleep(node),
    lambda node, _pod, _number: waking(node),
    lambda node, pod, number: claim(f"g{number % 3}", pod, number, node=node),
    lambda _, pod, number: confirmed(f"g{number % 3}", pod),
    lambda _, pod, number: released(f"g{number % 3}", pod),
)
ANY_FACTS = len(_ANY) * 3 * 4 * 101


def any_fact(choice: int) -> Fact:
    """One of `ANY_FACTS`; for laws that hold whatever happens."""
    choice, kind = divmod(choice, len(_ANY))
    choice, node = divmod(choice, 3)
    number, pod = divmod(choice, 4)
    return _ANY[kind](f"n{node}", f"p{pod}", number)


def one_of_each(node: str = "n1", uid: str = "pod-1") -> list[AnyEvent]:
    """An example of every event there is."""
    pod, basis = ask(uid, gpus=0.5), Basis(view=7, view_age_ms=3, now=NOON, settings="s1")
    candidates = Candidates(ordinals=b"\x00\x00\x00\x00\xff\xff\xff\xff", strangers=["new"])
    plan = PlanMade(
        plan="p", policy="static", view=7, nodes=2, performance=1, changes=1, inputs={"share": 0.5}
    )
    terms = Terms(
        node=node,
        score=41.25,
        headroom=50.5,
        cooling=20.0,
        trend=-1.5,
        bonus=0.0,
        pressure=0.0,
        draining=0.0,
        marginal_w=42.0,
        source="kepler",
    )
    prioritized = PrioritizeDecided(
        pod=pod,
        basis=basis,
        candidates=candidates,
        scores=b"\x29\x00\x32\x00",
        terms_digest=bytes(32),
        cluster_trend_w_per_min=12.5,
        perf_pressure=3.25,
        top=[terms],
    )
    return [
        power(node, 412.5),
        node_seen(node, gpus=8, power_profile="eco"),
        NodeGone(node=node),
        hardware(node, gpus=8),
        FacilityPolled(facility="hall-1", ambient_mdeg=24_500, it_mw=30_000_000),
        GpuSeen(
            uuid="GPU-5ab1",
            node=node,
            model="NVIDIA H100 SXM5",
            total_mb=81_559,
            allocated_mb=20_000,
            nvlink_group="0",
            owner=uid,
            source="agent",
        ),
        GpuGone(uuid="GPU-5ab1"),
        NamespaceSeen(namespace="team", workload="performance"),
        PodPending(pod=pod),
        PodBound(pod=pod, node=node),
        PodFinished(uid=uid),
        PodGone(uid=uid),
        plan,
        eco(node),
        draining(node),
        caps(node, cpu=60),
        completed(node),
        SleepOrdered(plan="p", node=node, because="nothing runs here"),
        WakeOrdered(plan="p", node=node, because="arrivals are forecast"),
        claim("GPU-5ab1", uid, node=node),
        confirmed("GPU-5ab1", uid),
        released("GPU-5ab1", uid),
        SettingsDeclared(settings="s1", code="0.1.0", values={"neutral": 50.0, "memory": True}),
        FilterDecided(
            pod=pod, basis=basis, candidates=candidates, verdicts=b"\x00\x02", reason="eco"
        ),
        prioritized,
        PreemptDecided(pod=pod, basis=basis, candidates=candidates, verdicts=b"\x00\x02"),
        FallbackAnswered(
            pod_uid=uid,
            namespace="team",
            name=uid,
            verb="filter",
            why="overdue",
            answer="open",
            candidates=2,
            basis=basis,
        ),
        DecisionsDropped(count=3, why="No space left on device"),
        BindDecided(
            pod_uid=uid,
            namespace="team",
            name=uid,
            node=node,
            basis=basis,
            outcome="lost-race",
            cards=["GPU-5ab1"],
            error="another replica was first",
        ),
        OutcomeSeen(
            pod_uid=uid,
            namespace="team",
            name=uid,
            node=node,
            decision="extender-0:b1:7",
            rank=2,
            score=41,
            regret=9,
        ),
    ]
