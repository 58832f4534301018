"""Agents as identities: each shows the token of its own pod, and publishes for its own node.

    make kube && make bench NAME=agent_identities [ARGS="--agents 5000 --servers 1 --rate 1"]

A real kube-apiserver (`make kube`) has a node, a pod and a bound token for each agent; `joulie
callout` is a process of its own, and so is each nats-server. The agents share one process: each has
a connection of its own and speaks no more of the protocol than an agent does; their messages are
those that the agent's producer makes, and each waits for the acknowledgement of the one before. A
reading is late by the time from its making to the acknowledgement that it is stored.

Measured are: how long all agents take to connect the first time, when each token is reviewed; the
latency of readings; how long it takes after all servers were killed and started again until all
agents are connected and have published; and what becomes of messages for another node; and what
each program takes of the processors meanwhile. `--folder /dev/shm` leaves the disk out.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from process_usage import cpu_s, require
from report import NotMeasured, Table

from agent_pods import SPACE, account, agent_token
from bus_kit import CLUSTER
from bus_kit.brokers import asking_cluster
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import TelemetrySampled
from joulie_bus.jetstream.attempts import Attempts
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.streams import ensure
from joulie_bus.log.producer import Producer
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.roles import Role, inbox
from joulie_bus.streams.subjects import agent_name
from kube_real import ASSETS, Running, program, real_server

SMALLEST = {"agents": 20, "rate": 5.0, "seconds": 3.0}
PROGRAMS = ("nats-server", "callout", "signer", "kube-apiserver", "etcd")
WAITING = "not made: the one before was not stored"
LATE = "not made: this benchmark was late"
CONNECTED = "all connected for the first time, each token reviewed, s"
PUBLISHED = "after the restart, all have published, s"
GIVEN_UP = "attempts that were given up"
AT_ONCE = 16
TRIED = 100  # agents that publish for another node
PATIENCE_S = 300.0
LATE_S = 0.1
ACK_S = 2.0  # without an acknowledgement the same message is sent again


class Figures:
    def __init__(self) -> None:
        self.latency_ms = list[float]()
        self.refused = self.waiting = self.late = self.given_up = 0

    def begin(self) -> None:
        self.latency_ms = []
        self.waiting = self.late = self.given_up = 0

    def row(self, seconds: float) -> dict[str, float]:
        found = sorted(self.latency_ms) or [float("nan")]
        p50, p99 = (found[int(len(found) * part)] for part in (0.5, 0.99))
        return {
            "readings stored per second": len(found) / seconds,
            "p50 ms": p50,
            "p99 ms": p99,
            "longest ms": found[-1],
            WAITING: float(self.waiting),
            LATE: float(self.late),
        }


class Agent(asyncio.Protocol):
    """One connection after the other, with the token and the rights of one node."""

    def __init__(self, node: str, token: str, ports: Sequence[int], figures: Figures) -> None:
        self.node, self._ports, self._figures = node, ports, figures
        self._producer = Producer(agent_name(node), CLUSTER, time.time_ns)
        self._inbox = inbox(Role.AGENT, node)
        self._hello = hello(token, self._inbox)
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._sent = self._sent_again = 0.0  # the reading that is not stored yet
        self._newest = b""
        self._attempts = Attempts(one_of_many=True)
        self._again = self._pause_s = 0.0  # when it connects, or gives up; and what follows
        self.connected = self.has_published = False

    def tick(self, now: float, late_s: float) -> None:
        """Its second has begun."""
        if not self.connected:
            return
        if self._sent:
            self._figures.waiting += 1
            if now - self._sent_again > ACK_S:
                self._sent_again = now
                self._write()
        elif late_s > LATE_S:
            self._figures.late += 1
        else:
            self._sent = self._sent_again = now
            self._newest = self._made(self._producer, self.node)
            self._write()

    async def connect(self, now: float) -> None:
        """With the patience and the pauses of an agent."""
        if self.connected or now < self._again:
            return
        if self._transport is not None:
            self._figures.given_up += 1
            self._transport.abort()
            self._lost(now)
            return
        patience_s, self._pause_s = self._attempts.begin()
        self._again = now + patience_s
        with contextlib.suppress(OSError):
            port = random.choice(self._ports)
            await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", port)
            return
        self._lost(now)

    def forge(self, node: str) -> None:
        """Reports for another node."""
        self._newest = self._made(Producer(agent_name(node), CLUSTER, time.time_ns), node)
        self._write()

    def _made(self, producer: Producer, node: str) -> bytes:
        message = producer.stamp(
            TelemetrySampled(node=node, power_mw=random.randint(200_000, 600_000))
        )
        head = f"NATS/1.0\r\nNats-Msg-Id: {message.id}\r\n\r\n".encode()
        line = f"HPUB {message.subject} {self._inbox}.1 {len(head)} {len(head) + len(message.data)}"
        return b"%b\r\n%b%b\r\n" % (line.encode(), head, message.data)

    def _write(self) -> None:
        assert self._transport is not None
        self._transport.write(self._newest)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._rest = transport, b""
        transport.write(self._hello)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(time.monotonic())

    def _lost(self, now: float) -> None:
        self._transport, self._sent, self._again = None, 0.0, now + self._pause_s
        self.connected = self.has_published = False

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\r\n")
        for line in lines:
            self._read(line)

    def _read(self, line: bytes) -> None:
        if line.startswith(b"MSG "):
            if self._sent:
                self._figures.latency_ms.append(1000 * (time.monotonic() - self._sent))
            self._sent, self.has_published = 0.0, True
        elif line == b"PONG":
            self.connected = True
            self._attempts.succeeded()
        elif line == b"PING" and self._transport is not None:
            self._transport.write(b"PONG\r\n")
        elif line.startswith(b"-ERR"):
            self._figures.refused += b"Permissions Violation for Publish" in line


def hello(token: str, place: str) -> bytes:
    told = {
        "auth_token": token,
        "verbose": False,
        "pedantic": False,
        "lang": "python",
        "version": "1",
        "protocol": 1,
        "headers": True,
        "name": "joulie-agent",
    }
    return f"CONNECT {json.dumps(told)}\r\nSUB {place}.> 1\r\nPING\r\n".encode()


async def pace(agents: Sequence[Agent], rate: float) -> None:
    """The seconds of the agents are spread evenly, as those of real agents are by chance. What is
    late by the fault of this process is left out and counted, and not made up for."""
    gap, following = 1 / (rate * len(agents)), time.monotonic()
    for agent in itertools.cycle(agents):
        now = time.monotonic()
        if now < following:
            await asyncio.sleep(max(0.001, following - now))
            now = time.monotonic()
        agent.tick(now, now - following)
        following += gap


async def reconnect(agents: Sequence[Agent]) -> None:
    while True:
        for at, agent in enumerate(agents):
            await agent.connect(time.monotonic())
            if at % 50 == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(0.02)


class Processors:
    """What each program took of the processors since the last call, in % of a core."""

    def __init__(self) -> None:
        self._began, self._before = time.monotonic(), cpu_s()

    def taken(self) -> dict[str, float]:
        now, used = time.monotonic(), cpu_s()
        require(PROGRAMS, used)
        share = 100 / (now - self._began)
        found = {name: (used[name] - self._before.get(name, 0.0)) * share for name in PROGRAMS}
        self._began, self._before = now, used
        return found


def sync_ms(folder: Path) -> float:
    """What the broker waits for, once for each message that it stores singly."""
    took = list[float]()
    opened = os.open(folder / "sync", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_SYNC)
    for _ in range(500):
        began = time.perf_counter()
        os.write(opened, bytes(300))
        took.append(1000 * (time.perf_counter() - began))
    os.close(opened)
    return median(took)


class Site(NamedTuple):
    servers: Sequence[Embedded]

    @property
    def ports(self) -> list[int]:
        return [int(server.url.rpartition(":")[2]) for server in self.servers]


@contextlib.asynccontextmanager
async def callout(site: Site, server: Running, folder: Path) -> AsyncGenerator[None, None]:
    first = site.servers[0]
    seed = folder / "issuer"
    seed.write_text(first.issuer.seed)
    account = ("--account", f"{SPACE}:joulie-agent")
    words = {
        "signer": ("--issuer", str(seed)),
        "callout": (*account, "--kubeconfig", str(server.kubeconfig("admin"))),
    }
    processes = []
    for user, options in words.items():
        address = first.address_of_callout(user)
        env = {
            "NATS_URL": ",".join(each.url for each in site.servers),
            "NATS_USER": address.user,
            "NATS_PASSWORD": address.password,
            "NATS_INBOX": address.inbox,
            "METRICS_ADDR": f"127.0.0.1:{free_port()}",
            "LOG_LEVEL": "error",
        }
        command = (sys.executable, "-m", "joulie_cli.main", user, *options)
        process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **env})
        processes.append(process)
    try:
        await asyncio.sleep(4)
        yield
    finally:
        for process in processes:
            process.terminate()
        await asyncio.gather(*(process.wait() for process in processes))


async def tokens(server: Running, count: int) -> dict[str, str]:
    await account(server)
    found, names = dict[str, str](), iter([f"n{at:04d}" for at in range(count)])

    async def some() -> None:
        for name in names:
            found[name] = await agent_token(server, name)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return found


async def until_all(agents: Sequence[Agent], are: Callable[[Agent], bool]) -> float:
    """The seconds that it took. Raises NotMeasured after PATIENCE_S."""
    began = time.monotonic()
    while missing := sum(not are(each) for each in agents):
        if time.monotonic() > began + PATIENCE_S:
            raise NotMeasured(f"{missing} agents are missing after {PATIENCE_S:.0f} s")
        await asyncio.sleep(0.1)
    return time.monotonic() - began


class Found(NamedTuple):
    """The rows of each table."""

    readings: dict[str, dict[str, float]]
    processors: dict[str, dict[str, float]]
    times: dict[str, float]


async def steady(name: str, figures: Figures, found: Found, seconds: float) -> None:
    await asyncio.sleep(min(5.0, seconds))
    figures.begin()
    used = Processors()
    await asyncio.sleep(seconds)
    found.readings[name], found.processors[name] = figures.row(seconds), used.taken()


async def measure(args: argparse.Namespace, site: Site, agents: Sequence[Agent]) -> Found:
    figures, found = agents[0]._figures, Found({}, {}, {})
    async with (
        background(pace(agents, args.rate), "pace"),
        background(reconnect(agents), "reconnect"),
    ):
        found.times[CONNECTED] = await until_all(agents, lambda each: each.connected)
        await steady("steady", figures, found, args.seconds)
        await forged(agents[:TRIED], figures, found)
        await restarted(site, agents, figures, found)
        await steady("after a restart of all servers", figures, found, args.seconds)
    return found


async def forged(tried: Sequence[Agent], figures: Figures, found: Found) -> None:
    for each, another in zip(tried, [*tried[1:], tried[0]], strict=True):
        each.forge(another.node)
    await asyncio.sleep(2)
    found.times["messages for another node"] = float(len(tried))
    found.times["of these refused"] = float(figures.refused)


async def restarted(site: Site, agents: Sequence[Agent], figures: Figures, found: Found) -> None:
    figures.begin()
    for server in site.servers:
        server.kill()
    await asyncio.gather(*(server.wait() for server in site.servers))
    began = time.monotonic()
    await asyncio.gather(*(server.start() for server in site.servers))
    found.times["after the restart, the broker answers, s"] = time.monotonic() - began
    await until_all(agents, lambda each: each.has_published)
    found.times[PUBLISHED] = time.monotonic() - began
    found.times[GIVEN_UP] = float(figures.given_up)


async def run(args: argparse.Namespace) -> list[Table]:
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        programs = program(ASSETS, "kube-apiserver").parent
        async with (
            real_server(folder / "kube", programs, bare=True) as server,
            asking_cluster(folder / "brokers", args.servers) as servers,
        ):
            site = Site(servers)
            admin = await Connection.open(servers[0].address_of(Role.ADMIN), "drill")
            await ensure(admin, CLUSTER, replicas=args.servers)
            await admin.close()
            made = await tokens(server, args.agents)
            sync = sync_ms(folder)
            async with callout(site, server, folder):
                figures = Figures()
                agents = [Agent(n, token, site.ports, figures) for n, token in made.items()]
                found = await measure(args, site, agents)
    found.times["a write with a sync, ms"] = sync
    return [
        Table(title="readings", rows=found.readings, zero={WAITING, LATE}),
        Table.of("connections", found.times, zero={GIVEN_UP}),
        Table(title="processors, % of a core", rows=found.processors),
    ]


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agents", type=int, default=5000)
    parser.add_argument("--servers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--rate", type=float, default=1.0, help="readings a second of each agent")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--folder", type=Path)


def measured(args: argparse.Namespace) -> list[Table]:
    return asyncio.run(run(args))
