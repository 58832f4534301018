"""Agents as identities: each shows the token of its own pod, and publishes for its own node.

    .venv/bin/python benchmarks/agent_identities.py [--agents 5000] [--servers 1] [--rate 1]

A real kube-apiserver (`make kube`) has a node, a pod and a bound token for each agent; `joulie
callout` is a process of its own, and so is each nats-server. The agents share one process: each has
a connection of its own and speaks no more of the protocol than an agent does; their messages are
those that the agent's producer makes, and each waits for the acknowledgement of the one before. A
reading is late by the time from its making to the acknowledgement that it is stored.

It prints how long all agents take to connect the first time, when each token is reviewed; the
latency of readings; how long it takes after all servers were killed and started again until all
agents are connected and have published; and what becomes of messages for another node. With each
figure it says what each program took of the processors. `--folder /dev/shm` leaves the disk out.
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
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kit"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kit" / "kube"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kit" / "broker"))

from agent_pods import SPACE, account, agent_token
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import TelemetrySampled
from joulie_bus.jetstream.attempts import Attempts
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.streams import ensure
from joulie_bus.log.producer import Producer
from joulie_bus.runtime.ports import free_port
from joulie_bus.streams.roles import Role, inbox
from joulie_bus.streams.subjects import agent_name
from joulie_bus.testing import CLUSTER
from joulie_bus.testing.brokers import asking_cluster
from kube_real import ASSETS, Running, program, real_server

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

    def shown(self, seconds: float) -> str:
        found = sorted(self.latency_ms)
        if not found:
            return "nothing was stored"
        p50, p99 = (found[int(len(found) * part)] for part in (0.5, 0.99))
        return (
            f"{len(found) / seconds:,.0f} readings/s stored, p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
            f"longest {found[-1]:.0f} ms; not made: {self.waiting} because the one before was not "
            f"stored yet, {self.late} because this benchmark was late"
        )


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


def stat(place: str) -> list[str]:
    """The fields of a process after its name."""
    with contextlib.suppress(OSError):
        return Path(place).read_text().rpartition(")")[2].split()
    return []


class Processors:
    """What each program of this benchmark took of the processors since the last call."""

    def __init__(self, callout: int) -> None:
        self._names = {os.getpid(): "this benchmark", callout: "callout"}
        self._began, self._before = time.monotonic(), self._ticks()

    def _ticks(self) -> dict[int, float]:
        """By process; of all processes of the machine by 0."""
        found, ours = dict[int, float](), {os.getpid()}
        for number in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
            fields = stat(f"/proc/{number}/stat")
            if fields and (number in ours or int(fields[1]) in ours):
                ours.add(number)
                found[number] = int(fields[11]) + int(fields[12])
        busy = [int(each) for each in Path("/proc/stat").read_text().split()[1:8]]
        return {**found, 0: sum(busy) - busy[3] - busy[4]}

    def _name(self, number: int) -> str:
        if not number:
            return "all of the machine"
        return self._names.get(number) or Path(f"/proc/{number}/comm").read_text().strip()

    def shown(self) -> str:
        now, ticks, sums = time.monotonic(), self._ticks(), dict[str, float]()
        for number, used in ticks.items():
            name = self._name(number)
            sums[name] = sums.get(name, 0) + used - self._before.get(number, 0)
        hundredth = os.sysconf("SC_CLK_TCK") * (now - self._began) / 100
        self._began, self._before = now, ticks
        parts = ", ".join(f"{name} {used / hundredth:.0f} %" for name, used in sums.items())
        return f"  processors ({os.cpu_count()} x 100 %): {parts}"


def sync_ms(folder: Path) -> str:
    """What the broker waits for, once for each message that it stores singly."""
    took = list[float]()
    opened = os.open(folder / "sync", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_SYNC)
    for _ in range(500):
        began = time.perf_counter()
        os.write(opened, bytes(300))
        took.append(1000 * (time.perf_counter() - began))
    os.close(opened)
    took.sort()
    return f"a write with a sync takes {sum(took) / 500:.2f} ms at the mean, p50 {took[250]:.2f} ms"


class Site(NamedTuple):
    servers: Sequence[Embedded]
    callout: int = 0  # its process

    @property
    def ports(self) -> list[int]:
        return [int(server.url.rpartition(":")[2]) for server in self.servers]


@contextlib.asynccontextmanager
async def callout(site: Site, server: Running, folder: Path) -> AsyncGenerator[Site, None]:
    first = site.servers[0]
    seed = folder / "issuer"
    seed.write_text(first.issuer.seed)
    address = first.address_of_callout()
    env = {
        "NATS_URL": ",".join(each.url for each in site.servers),
        "NATS_USER": address.user,
        "NATS_PASSWORD": address.password,
        "METRICS_ADDR": f"127.0.0.1:{free_port()}",
        "LOG_LEVEL": "error",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "joulie_cli.main", "callout", "--issuer", str(seed)),
        *("--account", f"{SPACE}:joulie-agent"),
        *("--kubeconfig", str(server.kubeconfig("admin"))),
        env={**os.environ, **env},
    )
    try:
        await asyncio.sleep(4)
        yield site._replace(callout=process.pid)
    finally:
        process.terminate()
        await process.wait()


async def tokens(server: Running, count: int) -> dict[str, str]:
    await account(server)
    found, names = dict[str, str](), iter([f"n{at:04d}" for at in range(count)])

    async def some() -> None:
        for name in names:
            found[name] = await agent_token(server, name)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return found


async def until_all(agents: Sequence[Agent], are: Callable[[Agent], bool]) -> float:
    """The seconds that it took, PATIENCE_S at most."""
    began = time.monotonic()
    while missing := sum(not are(each) for each in agents):
        if time.monotonic() > began + PATIENCE_S:
            print(f"{missing} of {len(agents)} agents are missing after {PATIENCE_S:.0f} s")
            break
        await asyncio.sleep(0.1)
    return time.monotonic() - began


async def steady(name: str, figures: Figures, used: Processors, seconds: float) -> None:
    await asyncio.sleep(5)
    figures.begin()
    used.shown()
    await asyncio.sleep(seconds)
    print(f"{name}: {figures.shown(seconds)}\n{used.shown()}", flush=True)


async def measured(args: argparse.Namespace, site: Site, agents: Sequence[Agent]) -> None:
    figures, used = agents[0]._figures, Processors(site.callout)
    tasks = [
        asyncio.create_task(pace(agents, args.rate)),
        asyncio.create_task(reconnect(agents)),
    ]
    first_s = await until_all(agents, lambda each: each.connected)
    print(f"connected for the first time, each token reviewed: {first_s:.1f} s", flush=True)
    print(f"  {figures.given_up} attempts were given up\n{used.shown()}")
    await steady("steady", figures, used, args.seconds)
    tried = agents[:TRIED]
    for each, another in zip(tried, [*tried[1:], tried[0]], strict=True):
        each.forge(another.node)
    await asyncio.sleep(2)
    print(f"messages for another node: {len(tried)} tried, {figures.refused} refused", flush=True)
    figures.begin()
    used.shown()
    for server in site.servers:
        server.kill()
    await asyncio.gather(*(server.wait() for server in site.servers))
    began = time.monotonic()
    await asyncio.gather(*(server.start() for server in site.servers))
    print(f"the broker answers {time.monotonic() - began:.1f} s after its restart", flush=True)
    await until_all(agents, lambda each: each.has_published)
    back_s = time.monotonic() - began
    print(f"after the restart of the broker, all have published: {back_s:.1f} s", flush=True)
    print(f"  {figures.given_up} attempts were given up\n{used.shown()}")
    await steady("steady again", figures, used, args.seconds)
    for task in tasks:
        task.cancel()


async def run(args: argparse.Namespace) -> None:
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
            began = time.monotonic()
            made = await tokens(server, args.agents)
            print(
                f"{len(made)} nodes, pods and tokens in {time.monotonic() - began:.0f} s",
                flush=True,
            )
            print(f"{sync_ms(folder)}; load {os.getloadavg()[0]:.1f}", flush=True)
            async with callout(site, server, folder) as site:
                figures = Figures()
                agents = [Agent(n, token, site.ports, figures) for n, token in made.items()]
                await measured(args, site, agents)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=5000)
    parser.add_argument("--servers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--rate", type=float, default=1.0, help="readings a second of each agent")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--folder", type=Path)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
