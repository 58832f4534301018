"""What a cluster does to Joulie in the drill: kube-scheduler, kubelets, agents."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from virtual_time import Process

from bus_kit import CLUSTER
from drill_cluster import DrillCluster
from joulie_bus.events import TelemetrySampled
from joulie_bus.http.connection import Connection
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.streams.subjects import agent_name
from kube_fields import Tree

SAMPLE = 500  # nodes that kube-scheduler sends at most
GROUP, GROUP_S = 8, 0.055  # pods that arrive at once: 145 a second, as on two busy cores
KUBELET_S = 0.25  # between two updates of a pod
READING_S = 10.0  # between two of a node
READ_TOGETHER_S = 0.02
WITH_CARDS = 10  # one node in so many has cards
HARDWARE = {"joulie.io/hw.cpu-model": "AMD-EPYC-9654", "joulie.io/hw.cpu-sockets": "2"}
CARDS = {"joulie.io/hw.gpu-model": "NVIDIA-H100-80GB-HBM3", "joulie.io/hw.gpu-count": "8"}
NAMESPACE = "default"
encode = msgspec.json.Encoder().encode


def node_name(number: int) -> str:
    return f"node-{number:05d}.example.internal"


def a_node(number: int) -> Tree:
    """As large as a real one."""
    has_cards = number % WITH_CARDS == 0
    room = {"cpu": "96" if number % 2 else "64", "memory": "256Gi", "pods": "110"}
    room |= {"nvidia.com/gpu": "8"} if has_cards else {}
    labels = {"joulie.io/managed": "true", "kubernetes.io/hostname": node_name(number)}
    labels |= HARDWARE | (CARDS if has_cards else {})
    images = [{"names": [f"registry/{at}@sha256:{'0' * 64}"], "sizeBytes": at} for at in range(20)]
    return {
        "metadata": {"name": node_name(number), "labels": labels},
        "status": {
            "allocatable": room,
            "capacity": room,
            "images": images,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def a_pod(number: int) -> Tree:
    """One in four is class performance, one in ten asks for a card; half of it is managedFields."""
    notes = {} if number % 4 else {"joulie.io/workload-class": "performance"}
    card = {} if number % 10 else {"nvidia.com/gpu": "1"}
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"} | card, "limits": card}
    managed = {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1"}
    fields: Tree = {"f:spec": {f"f:{name}": {} for name in range(60)}}
    return {
        "metadata": {
            "name": f"web-{number}",
            "annotations": notes,
            "managedFields": [managed | {"fieldsV1": fields}],
        },
        "spec": {"containers": [{"name": "c", "image": "registry/x:1", "resources": resources}]},
        "status": {"phase": "Pending"},
    }


class Transport(asyncio.Transport):
    """Of the extender's connection: replies are picked up by the client."""

    def __init__(self) -> None:
        super().__init__()
        self.replies = asyncio.Queue[bytes]()

    def write(self, data: Any) -> None:
        self.replies.put_nowait(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(bytes(each) for each in list_of_data))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 9876) if name == "sockname" else default

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False


class Client:
    """kube-scheduler's connection to the extender, whose code runs in its own process."""

    def __init__(self, connection: Connection, process: Process) -> None:
        self._connection, self._process = connection, process
        self._transport = Transport()
        self._run(connection.connection_made, self._transport)

    def _run(self, call: Callable[..., object], *args: object) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(call, *args, context=self._process.context)

    async def post(self, verb: str, body: bytes) -> bytes:
        head = (
            f"POST /energy/{verb} HTTP/1.1\r\nHost: 127.0.0.1:9876\r\n"
            f"User-Agent: Go-http-client/1.1\r\nContent-Length: {len(body)}\r\n"
            "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        )
        self._run(self._receive, head.encode() + body)
        reply = await self._transport.replies.get()
        assert reply.startswith(b"HTTP/1.1 200"), reply[:200]
        return reply.partition(b"\r\n\r\n")[2]

    def _receive(self, data: bytes) -> None:
        """As a loop does with a socket."""
        while data:
            buffer = self._connection.get_buffer(len(data))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self._connection.buffer_updated(count)
            data = data[count:]


class Load(NamedTuple):
    cluster: DrillCluster
    client: Client
    nodes: int

    async def pods(self, first: int, count: int) -> None:
        """Places them, and returns when their kubelets have reported them."""
        loop = asyncio.get_running_loop()
        began, kubelets = loop.time(), list[asyncio.Task[None]]()
        for start in range(first, first + count, GROUP):
            group = range(start, min(start + GROUP, first + count))
            for number in group:
                self.cluster.objects.create(self.cluster.kind("pods"), NAMESPACE, a_pod(number))
            await asyncio.sleep(0.01)
            for number in group:
                await self._place(number)
                kubelets.append(asyncio.create_task(self._start(f"web-{number}")))
            groups = (start - first) // GROUP + 1
            await asyncio.sleep(max(0.0, began + groups * GROUP_S - loop.time()))
        await asyncio.gather(*kubelets)

    async def _place(self, number: int) -> None:
        pods = self.cluster.kind("pods")
        pod = self.cluster.objects.get(pods, NAMESPACE, f"web-{number}")
        size = min(SAMPLE, self.nodes)
        names = [node_name((number * size + at) % self.nodes) for at in range(size)]
        body = encode({"Pod": pod, "Nodes": None, "NodeNames": names})
        passed = msgspec.json.decode(await self.client.post("filter", body))["NodeNames"]
        body = encode({"Pod": pod, "Nodes": None, "NodeNames": passed})
        scores = msgspec.json.decode(await self.client.post("prioritize", body))
        best = max(scores, key=lambda each: each["Score"])["Host"]
        self.cluster.objects.bind(NAMESPACE, f"web-{number}", {"target": {"name": best}})

    async def _start(self, name: str) -> None:
        """Four updates of the status."""
        pods = self.cluster.kind("pods")
        for phase, is_ready, ip in (
            ("Pending", False, ""),
            ("Pending", True, ""),
            ("Running", False, "10.2.0.1"),
            ("Running", True, "10.2.0.1"),
        ):
            await asyncio.sleep(KUBELET_S)
            ready = {"type": "Ready", "status": str(is_ready)}
            status = {"phase": phase, "conditions": [ready], "podIP": ip, "hostIP": "10.1.0.1"}
            self.cluster.objects.merge(pods, NAMESPACE, name, {"status": status})


async def readings(bus: Log, nodes: int) -> None:
    """Of all nodes in turn, each from the agent of its node."""
    says = [Producer(agent_name(node_name(at)), CLUSTER, time.time_ns) for at in range(nodes)]
    began, sent = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - began) * nodes / READING_S)
        made = [
            says[at % nodes].stamp(
                TelemetrySampled(
                    node=node_name(at % nodes), power_mw=200_000 + at % 100 * 1000 + at // nodes % 7
                )
            )
            for at in range(sent, due)
        ]
        await bus.publish(made)
        sent = due
        await asyncio.sleep(READ_TOGETHER_S)
