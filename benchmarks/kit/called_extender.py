"""The real extender over HTTP, and a client that sends it what kube-scheduler sends."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bus_kit import Voices, caps, eco, hardware, node_seen, performance, power
from joulie_bus.jetstream.connection import Address
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.child_process import START_S
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.settings import HostPort
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Subjects
from joulie_cli.supervisor.supervisor import Supervisor
from joulie_projections.component.data_directory import DataDirectory

CLUSTER = Subjects("local")
TICKS = os.sysconf("SC_CLK_TCK")


def name_of(number: int) -> str:
    return f"node-{number:05d}.example.internal"


class Caller:
    """A minimal client with one keep-alive connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._port = port

    def call(self, verb: str, body: bytes) -> bytes:
        head = (
            f"POST /{verb} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"User-Agent: Go-http-client/1.1\r\nContent-Length: {len(body)}\r\n"
            "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        )
        self._socket.sendall(head.encode() + body)
        got = bytearray(self._socket.recv(1 << 20))
        while (end := got.find(b"\r\n\r\n")) < 0:
            got += self._socket.recv(1 << 20)
        assert got.startswith(b"HTTP/1.1 200"), bytes(got[:200])
        at = got.find(b"Content-Length: ") + 16
        whole = end + 4 + int(got[at : got.find(b"\r", at)])
        while len(got) < whole:
            got += self._socket.recv(1 << 22)
        return bytes(got[end + 4 :])

    def close(self) -> None:
        self._socket.close()


def pod(number: int) -> dict[str, Any]:
    """1.4 KB, half of it managedFields, as in a cluster; one in four is of class performance."""
    annotations = {"joulie.io/workload-class": "performance"} if number % 4 == 0 else {}
    resources = {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi"}}
    managed = {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1"}
    return {
        "metadata": {
            "name": f"web-{number}",
            "namespace": "team",
            "uid": f"8f1c0f5e-0000-4000-8000-{number:012d}",
            "annotations": annotations,
            "managedFields": [
                {**managed, "fieldsV1": {"f:spec": {f"f:{n}": {} for n in range(60)}}}
            ],
        },
        "spec": {
            "containers": [{"name": "c", "image": "registry/x:1", "resources": resources}],
            "schedulerName": "default-scheduler",
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }


def args(asking: dict[str, Any], nodes: object, names: object) -> bytes:
    return msgspec.json.encode({"Pod": asking, "Nodes": nodes, "NodeNames": names})


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def await_port(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise TimeoutError(f"no process listens on {port}")


@contextlib.asynccontextmanager
async def ours(
    nodes: int, directory: Path, **settings: str
) -> AsyncGenerator[tuple[int, int, Path], None]:
    """The real extender with a cluster of `nodes` nodes."""
    data = DataDirectory(directory / "data")
    addresses = {
        "extender": HostPort("127.0.0.1", free_port()),
        "metrics": HostPort("127.0.0.1", free_port()),
    }
    extra = {"TWIN_STALENESS_THRESHOLD": "10h", "EXTENDER_DEADLINE": "10s", **settings}
    parts: dict[str, Sequence[str]] = dict.fromkeys(("projector", "extender"), ())
    async with Supervisor.over(data, parts, addresses, extra, CLUSTER) as supervisor:
        await tell_of(supervisor.broker.address_of(Role.ADMIN), nodes)
        port = addresses["extender"].port
        await asyncio.to_thread(await_nodes, port, nodes)
        await asyncio.sleep(START_S + 1)  # until the other processes have lower priority
        running = data.running()
        assert running is not None
        yield port, running.parts["extender"], data.path


async def tell_of(address: Address, nodes: int) -> None:
    says = Voices("bench", CLUSTER, time.time_ns)
    async with JetStreamLog.open(address, "bench") as bus:
        for first in range(0, nodes, 500):
            facts = [
                fact
                for name in map(name_of, range(first, min(nodes, first + 500)))
                for fact in (
                    node_seen(name),
                    hardware(name),
                    caps(name, 60),
                    (eco if int(name[5:10]) % 8 == 0 else performance)(name),
                    power(name, 200 + int(name[5:10]) % 100),
                )
            ]
            await bus.publish([says.stamp(fact) for fact in facts])


def await_nodes(port: int, nodes: int) -> None:
    await_port(port)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with socket.create_connection(("127.0.0.1", port)) as page:
            page.sendall(
                b"GET /debug/scoring HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            got = b""
            while part := page.recv(1 << 20):
                got += part
        is_known = not (b'"stale":true' in got or b'"schedulableClass":"unknown"' in got)
        if is_known and got.count(b'"measuredPowerW"') == nodes:
            return
        time.sleep(0.2)
    raise TimeoutError("the extender did not receive all nodes")
