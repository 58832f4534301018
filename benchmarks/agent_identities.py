"""Agents as identities: each shows the token of its own pod, and publishes for its own node.

    .venv/bin/python benchmarks/agent_identities.py [--agents 5000] [--servers 1] [--rate 1]

A real kube-apiserver (`make kube`) has a node, a pod and a bound token for each agent; `joulie
callout` is a process of its own, and so is each nats-server. The agents share one process: each has
a connection of its own and speaks no more of the protocol than an agent does; their messages are
those that the agent's producer makes. A reading is late by the time from its making to the
acknowledgement that it is stored.

It prints how long all agents take to connect the first time, when each token is reviewed; the
latency of readings; how long it takes after all servers were killed and started again until all
agents are connected and have published; and what becomes of messages for another node.
"""

import argparse
import asyncio
import contextlib
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


class Figures:
    def __init__(self) -> None:
        self.latency_ms = list[float]()
        self.refused = self.foreign = 0
        self.last_s = 0.0

    def take(self) -> list[float]:
        found, self.latency_ms = sorted(self.latency_ms), []
        return found


class Agent(asyncio.Protocol):
    """One connection after the other, with the token and the rights of one node."""

    def __init__(self, node: str, token: str, ports: Sequence[int], figures: Figures) -> None:
        self.node, self._token, self._ports, self._figures = node, token, ports, figures
        self._producer = Producer(agent_name(node), CLUSTER, time.time_ns)
        self._inbox = inbox(Role.AGENT, node)
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._sent = dict[int, float]()
        self._number = 0
        self.connected = False
        self.has_published = False

    async def run(self, rate: float) -> None:
        await asyncio.sleep(random.uniform(0, 1 / rate))
        while True:
            if self._transport is None:
                await self._connect()
            elif self.connected:
                self.publish(self.node)
            await asyncio.sleep(1 / rate if self.connected else random.uniform(0.2, 0.5))

    async def _connect(self) -> None:
        with contextlib.suppress(OSError):
            port = random.choice(self._ports)
            await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", port)

    def publish(self, node: str) -> None:
        own = node == self.node
        producer = self._producer if own else Producer(agent_name(node), CLUSTER, time.time_ns)
        message = producer.stamp(
            TelemetrySampled(node=node, power_mw=random.randint(200_000, 600_000))
        )
        self._number += 1
        self._sent[self._number] = time.monotonic()
        head = f"NATS/1.0\r\nNats-Msg-Id: {message.id}\r\n\r\n".encode()
        line = f"HPUB {message.subject} {self._inbox}.{self._number} {len(head)} "
        whole = f"{line}{len(head) + len(message.data)}\r\n".encode()
        assert self._transport is not None
        self._transport.write(whole + head + message.data + b"\r\n")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._rest = transport, b""
        told = {
            "auth_token": self._token,
            "verbose": False,
            "pedantic": False,
            "lang": "python",
            "version": "1",
            "protocol": 1,
            "headers": True,
            "name": "joulie-agent",
        }
        transport.write(f"CONNECT {json.dumps(told)}\r\nSUB {self._inbox}.> 1\r\nPING\r\n".encode())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport, self.connected, self.has_published = None, False, False
        self._sent.clear()

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\r\n")
        for line in lines:
            self._read(line)

    def _read(self, line: bytes) -> None:
        if line == b"PONG":
            self.connected = True
        elif line == b"PING" and self._transport is not None:
            self._transport.write(b"PONG\r\n")
        elif line.startswith(b"-ERR"):
            self._figures.refused += b"Permissions Violation for Publish" in line
        elif line.startswith(b"MSG "):
            number = int(line.split()[1].rpartition(b".")[2])
            if (sent := self._sent.pop(number, None)) is not None:
                now = time.monotonic()
                self._figures.latency_ms.append(1000 * (now - sent))
                self.has_published = True


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
        yield
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


def shown(latency: Sequence[float], seconds: float) -> str:
    at = [latency[min(len(latency) - 1, int(len(latency) * part))] for part in (0.5, 0.99)]
    return (
        f"{len(latency) / seconds:,.0f} readings/s stored, p50 {at[0]:.1f} ms, p99 {at[1]:.1f} ms, "
        f"longest {latency[-1]:.0f} ms"
    )


async def steady(name: str, figures: Figures, seconds: float) -> None:
    await asyncio.sleep(5)
    figures.take()
    await asyncio.sleep(seconds)
    print(f"{name}: {shown(figures.take(), seconds)}", flush=True)


async def measured(args: argparse.Namespace, site: Site, agents: Sequence[Agent]) -> None:
    figures: Figures = agents[0]._figures
    tasks = [asyncio.create_task(each.run(args.rate)) for each in agents]
    first_s = await until_all(agents, lambda each: each.connected)
    print(f"connected for the first time, each token reviewed: {first_s:.1f} s", flush=True)
    await steady("steady", figures, args.seconds)
    tried = agents[:TRIED]
    for each, another in zip(tried, [*tried[1:], tried[0]], strict=True):
        each.publish(another.node)
    await asyncio.sleep(2)
    print(f"messages for another node: {len(tried)} tried, {figures.refused} refused", flush=True)
    for server in site.servers:
        server.kill()
    await asyncio.gather(*(server.wait() for server in site.servers))
    await asyncio.gather(*(server.start() for server in site.servers))
    back_s = await until_all(agents, lambda each: each.has_published)
    print(f"after the restart of the broker, all have published: {back_s:.1f} s", flush=True)
    await steady("steady again", figures, args.seconds)
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
            async with callout(site, server, folder):
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
