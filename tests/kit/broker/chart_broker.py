"""The broker of the chart on this machine: the rendered configuration, with nats-server.

Only what one machine cannot have is replaced: names of pods, ports, and the paths of volumes.
"""

import asyncio
import base64
import contextlib
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from helm_chart import NAMESPACE, of_kind, pod_specs, rendered
from joulie_bus.broker.checksum import server_binary
from joulie_bus.broker.healthy import why_unhealthy
from joulie_bus.runtime.ports import free_port
from kube_real import started

PATIENCE_S = 120.0
SERVERS = "StatefulSet/joulie-nats"


class ChartServer(NamedTuple):
    """One nats-server with the rendered configuration."""

    name: str  # of its pod
    port: int
    monitoring: int
    routes: int


class ChartBroker(NamedTuple):
    servers: Sequence[ChartServer]
    place: Path
    trees: list[dict[str, Any]]

    @property
    def port(self) -> int:
        return self.servers[0].port

    @property
    def monitoring(self) -> int:
        return self.servers[0].monitoring


@contextlib.asynccontextmanager
async def chart_broker(home: Path, place: Path, *options: str) -> AsyncGenerator[ChartBroker, None]:
    """All servers of the StatefulSet, once the chart's probe finds each of them ready."""
    trees = await asyncio.to_thread(rendered, home, *options)
    await _mount(trees, place)
    stateful = of_kind(trees, "StatefulSet")["joulie-nats"]
    servers = [
        ChartServer(f"joulie-nats-{number}", free_port(), free_port(), free_port())
        for number in range(stateful["spec"]["replicas"])
    ]
    async with contextlib.AsyncExitStack() as running:
        for server in servers:
            own = place / server.name
            own.mkdir()
            (own / "nats.conf").write_text(_configuration(trees, server, servers, place))
            clean = ["/usr/bin/env", "-i", f"POD_NAME={server.name}"]
            command = [*clean, server_binary(), "-c", str(own / "nats.conf")]
            await running.enter_async_context(started(command, own))
        await asyncio.gather(*(_ready(server) for server in servers))
        yield ChartBroker(servers, place, trees)


async def _mount(trees: list[dict[str, Any]], place: Path) -> None:
    """The volumes of the pods: certificates, and the users that an init container joins."""
    for name, content in secret(trees, "joulie-nats-tls").items():
        (place / name).write_bytes(content)
    [users, *_] = pod_specs(trees)[SERVERS]["initContainers"]
    for name in ("users", "broker", "issuer"):
        (place / name).mkdir()
    for name, value in secret(trees, "joulie-nats-users").items():
        (place / "users" / name).write_bytes(value)
    if "joulie-callout-issuer" in of_kind(trees, "Secret"):
        for name, value in secret(trees, "joulie-callout-issuer").items():
            (place / "issuer" / name).write_bytes(value)
    _, *words = users["command"]
    here = [word.replace("/etc/joulie", str(place)) for word in words]
    await asyncio.to_thread(subprocess.run, [sys.executable, *here], check=True)


def _configuration(
    trees: list[dict[str, Any]], server: ChartServer, servers: Sequence[ChartServer], place: Path
) -> str:
    conf: str = of_kind(trees, "ConfigMap")["joulie-nats"]["data"]["nats.conf"]
    here = {
        "0.0.0.0:4222": f"127.0.0.1:{server.port}",
        "8222": str(server.monitoring),
        "/etc/joulie/nats": str(place),
        '"/data"': f'"{place / server.name / "store"}"',
        "../joulie/broker": "../broker",
    }
    if len(servers) > 1:
        here["0.0.0.0:6222"] = f"127.0.0.1:{server.routes}"
        for each in servers:
            there = f"{each.name}.joulie-nats.{NAMESPACE}.svc:6222"
            here[there] = f"localhost:{each.routes}"
    for there, replaced in here.items():
        assert there in conf
        conf = conf.replace(there, replaced)
    return conf


async def _ready(server: ChartServer) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await asyncio.to_thread(why_unhealthy, "js-server-only", server.monitoring):
            await asyncio.sleep(0.05)


def secret(trees: list[dict[str, Any]], name: str) -> Mapping[str, bytes]:
    data = of_kind(trees, "Secret")[name]["data"]
    return {key: base64.b64decode(value) for key, value in data.items()}
