"""From a plan to the limits of 100 nodes, and back to the view that pods are scored from.

    make bench NAME=caps [ARGS="--nodes 100 --rounds 10"]

Broker, projector, operator and extender are processes with their usual settings. Each node has a
connection and a writer of caps of its own, on a tree of files like that of powercap; they share one
process, which also reads the nodes' power once a second: what their limits allow. A power target
is set and withdrawn by turns, and the operator changes all caps without waiting for a tick.

A delay is the time from the plan that caps a node until a view, the same as the extender's, has the
report that its limits are set and read back. The second row counts until the extender's own page
has the same position; it makes that page once a second, so this is an upper bound.
"""

import argparse
import asyncio
import contextlib
import functools
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

import msgspec
from report import Table

import host_trees
from bus_kit import CLUSTER, connected, hardware, node_seen, power, running_broker
from bus_kit.stamping import Voices
from capped_cluster import CappedCluster
from joulie_agent.caps.clocks import Locks
from joulie_agent.caps.memory import Memory
from joulie_agent.caps.release import all_limits
from joulie_agent.caps.service import CapService
from joulie_agent.caps.writer import Writer
from joulie_agent.sources.host import Host
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import AnyEvent, TargetSet
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.roles import Role
from joulie_forked import joulie
from joulie_projections.state.state import NodeState
from joulie_projections.store import database
from joulie_projections.view.view import View
from seen_positions import read_by_extender

SMALLEST = {"nodes": 10, "rounds": 2}
SOCKETS, MOST_W = 2, 350  # of the tree
LOOK_S, ASK_S, READ_S = 0.005, 0.02, 1.0
PATIENCE_S = 60.0


class Node:
    """A node whose limits are files."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._host = Host(host_trees.xeon(folder / name))
        self._memory = Memory(folder / f"{name}.json")

    async def run(self, broker: Embedded) -> None:
        locks = Locks(self._memory)
        found = functools.partial(all_limits, self._host, None, locks)
        service = CapService(CLUSTER, self.name, Writer(self._memory, dry_run=False), found, _none)
        async with (
            connected(broker, self.name, Role.AGENT) as connection,
            JetStreamLog.over(connection) as bus,
            background(service.follow(bus), "orders"),
        ):
            await service.run()

    def watts(self) -> float:
        files = self._host.root.glob("sys/class/powercap/intel-rapl:?/constraint_0_power_limit_uw")
        return sum(int(file.read_text()) for file in files) / 1_000_000


async def _none() -> dict[str, list[str]]:
    return {}


class Seen(NamedTuple):
    """A report of one node in the view: how late, when, and at which position."""

    delay_s: float
    at_s: float
    position: int


class Delays:
    """Looks into a view for reports of the newest caps of each node, and asks the extender."""

    def __init__(self, view: View, address: str) -> None:
        self._view, self._address = view, address
        nodes = view.cluster_state.nodes.items()
        self._counted = {name: node.caps_at for name, node in nodes}
        self.seen = list[Seen]()
        self.of_extender = list[float]()

    async def look(self) -> None:
        while True:
            for name, node in self._view.cluster_state.nodes.items():
                if node.caps_at and self._counted.get(name) != node.caps_at and is_applied(node):
                    self._counted[name] = node.caps_at
                    late_s = (time.time_ns() - node.caps_at) / 1e9
                    self.seen.append(Seen(late_s, time.monotonic(), self._view.position))
            await asyncio.sleep(LOOK_S)

    async def ask(self) -> None:
        waits = 0  # index of the first report that the extender did not have yet
        while True:
            with contextlib.suppress(OSError):
                position = await read_by_extender(self._address)
                now = time.monotonic()
                while waits < len(self.seen) and self.seen[waits].position <= position:
                    delay_s, at_s, _ = self.seen[waits]
                    self.of_extender.append(delay_s + max(0.0, now - at_s))
                    waits += 1
            await asyncio.sleep(ASK_S)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.of_extender) < count:
                await asyncio.sleep(LOOK_S)


def is_applied(node: NodeState) -> bool:
    """Whether the newest report came after the newest caps and is of them."""
    pct = node.cpu_cap_pct
    ordered = None if pct is None or pct >= 100 else MOST_W * 1000 * pct // 100
    return node.applied_at > node.caps_at and node.applied_cpu_mw == ordered


async def delays_of(args: argparse.Namespace, folder: Path) -> Delays:
    await asyncio.to_thread(joulie, "migrate", "--data", folder / "data")
    nodes = [Node(f"n{number}", folder) for number in range(args.nodes)]
    address = f"127.0.0.1:{free_port()}"
    async with contextlib.AsyncExitStack() as stack:
        broker = await stack.enter_async_context(running_broker(folder / "broker"))
        cluster = CappedCluster(folder, broker, {})
        settings = {Role.EXTENDER: {"EXTENDER_ADDR": address}}
        settings[Role.OPERATOR] = {"STATIC_HP_FRAC": "0", "CPU_ECO_CAP_PCT_OF_MAX": "100"}
        for role in (Role.PROJECTOR, Role.EXTENDER, Role.OPERATOR):
            await stack.enter_async_context(cluster.running(role, **settings.get(role, {})))
        connection = await stack.enter_async_context(connected(broker, "nodes", Role.OPERATOR))
        bus = await stack.enter_async_context(JetStreamLog.over(connection))
        teller = Teller(bus)
        await teller.introduce(nodes)
        engine = database.reader(folder / "data" / "joulie.db")
        stack.callback(engine.dispose)
        view = await stack.enter_async_context(View.open(bus, engine, CLUSTER))
        await view.wait_ready(PATIENCE_S)
        for node in nodes:
            await stack.enter_async_context(background(node.run(broker), node.name))
        await stack.enter_async_context(background(teller.read(nodes), "readings"))
        await all_planned(view, args.nodes)
        delays = Delays(view, address)
        for program in (delays.look(), delays.ask()):
            await stack.enter_async_context(background(program, "delays"))
        for number in range(args.rounds):
            watts = None if number % 2 else round(0.7 * SOCKETS * MOST_W * args.nodes)
            await teller.target(watts)
            await delays.until((number + 1) * args.nodes)
        return delays


class Teller:
    """Publishes facts of the nodes, and the target."""

    def __init__(self, bus: JetStreamLog) -> None:
        self._bus = bus
        self._voices = Voices("nodes", CLUSTER, time.time_ns)

    async def introduce(self, nodes: list[Node]) -> None:
        for node in nodes:
            found = msgspec.structs.replace(hardware(node.name, watts=MOST_W), cpu_sockets=SOCKETS)
            facts: list[AnyEvent] = [node_seen(node.name, caps="enforce"), found]
            await self._bus.publish([self._voices.stamp(fact) for fact in facts])

    async def read(self, nodes: list[Node]) -> None:
        while True:
            readings = [self._voices.stamp(power(node.name, node.watts())) for node in nodes]
            await self._bus.publish(readings)
            await asyncio.sleep(READ_S)

    async def target(self, watts: int | None) -> None:
        power_mw = None if watts is None else watts * 1000
        fact = TargetSet(target="bench", power_mw=power_mw, ends_at=2**62)
        await self._bus.publish([self._voices.stamp(fact)])


async def all_planned(view: View, count: int) -> None:
    """Until each writer has reported what it can set, and the first plan is made."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = view.cluster_state.nodes.values()
            if sum(bool(node.settable.at and node.caps_at) for node in found) == count:
                return
            await asyncio.sleep(LOOK_S)


def row(delays_s: list[float]) -> dict[str, float]:
    cuts = quantiles(delays_s, n=100)
    figures = {"p50 s": cuts[49], "p99 s": cuts[98], "longest s": max(delays_s)}
    return figures | {"caps": float(len(delays_s))}


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10)


def measured(args: argparse.Namespace) -> list[Table]:
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(delays_of(args, Path(folder)))
    rows = {"in a view": row([each.delay_s for each in found.seen])}
    rows["on the extender's page"] = row(found.of_extender)
    return [Table(title="from a plan to the report of a cap", rows=rows)]
