"""Attackers for drills: an agent, HTTP clients and a tenant that send whatever they can.

Each one runs until it is cancelled and counts its attempts. All of them draw from a seeded source,
so that a run can be repeated, and pause between attempts, so that the load is bounded.
"""

import asyncio
import contextlib
import random
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import msgspec

from bus_kit import one_of_each, power
from joulie_bus.errors import KubernetesRefused, Unreachable
from joulie_bus.events import AnyEvent, codec
from joulie_bus.events.codec import Envelope
from joulie_bus.jetstream.connection import Connection
from joulie_bus.streams.subjects import Subjects, agent_name
from kube_real import Running

PAUSE_S = 0.01
ANSWER_S = 5.0
EXTREMES = (
    0,
    -1,
    1,
    2**31,
    2**53,
    2**63 - 1,
    2**63,
    2**64 - 1,
    1e308,
    -1e308,
    "",
    "\0",
    "x" * 9000,
)

NOT_REQUESTS = (
    b"{",
    b"null",
    b"[" * 5000,
    b'{"Pod": 1}',
    b'{"Pod": {"spec": []}, "NodeNames": {}}',
    b'{"Pod": {"metadata": {"name": "\\ud800"}}}',
)


async def _repeat(attempt: Callable[[], Awaitable[None]], pause_s: float) -> None:
    while True:
        await attempt()
        await asyncio.sleep(pause_s)


@contextlib.asynccontextmanager
async def attacking(attackers: Sequence["Attacker"]) -> AsyncGenerator[None, None]:
    """All of them at once, until the end of the block."""
    async with asyncio.TaskGroup() as tasks:
        attacks = [tasks.create_task(attacker.run()) for attacker in attackers]
        yield
        for attack in attacks:
            attack.cancel()


# --- an agent ---------------------------------------------------------------------------------


class HostileAgent:
    """Has the credentials of one node's agent and publishes about everything else."""

    def __init__(
        self, connection: Connection, subjects: Subjects, node: str, victims: list[str], seed: int
    ) -> None:
        self.attempts: Counter[str] = Counter()
        self._connection = connection
        self._node = node
        self._victims = victims
        self._random = random.Random(seed)
        self._own = subjects.of(power(node, 0.0), agent_name(node))
        self._subjects = subjects
        self._number = 0

    async def run(self) -> None:
        await _repeat(self._attempt, PAUSE_S)

    async def _attempt(self) -> None:
        kind = self._random.choice(
            (
                self._random_bytes,
                self._random_fact,
                self._extreme_fact,
                self._foreign_subject,
                self._foreign_producer,
                self._other_node,
            )
        )
        subject, data = kind()
        self.attempts[kind.__name__.removeprefix("_")] += 1
        with contextlib.suppress(Unreachable, OSError):
            await self._connection.send(subject, data)

    def _random_bytes(self) -> tuple[str, bytes]:
        return self._own, self._random.randbytes(self._random.choice((0, 1, 40, 4000, 100_000)))

    def _random_fact(self) -> tuple[str, bytes]:
        return self._own, self._sealed(self._fact())

    def _extreme_fact(self) -> tuple[str, bytes]:
        """A fact of any type with one field at an extreme or of another type."""
        event = self._fact()
        tree = msgspec.msgpack.decode(msgspec.msgpack.encode(event))
        if tree:
            tree[self._random.choice(sorted(tree))] = self._random.choice(EXTREMES)
        with contextlib.suppress(OverflowError):
            return self._own, self._sealed(event, msgspec.msgpack.encode(tree))
        return self._own, b""

    def _foreign_subject(self) -> tuple[str, bytes]:
        """The broker refuses these; some would be true facts of the node that they speak of."""
        event = self._fact()
        return self._subjects.of(event, "extender-0"), self._sealed(event)

    def _foreign_producer(self) -> tuple[str, bytes]:
        """A number far ahead, so that what the named producer sends next would be a repeat."""
        name = self._random.choice(("operator", "simulator", "scraper", "extender-0", "projector"))
        event_id = f"{name}:{secrets.token_hex(4)}:{10**17}"
        return self._own, self._sealed(power(self._node, 0.0), event_id=event_id)

    def _other_node(self) -> tuple[str, bytes]:
        return self._own, self._sealed(power(self._random.choice(self._victims), 0.0))

    def _fact(self) -> AnyEvent:
        victim = self._random.choice(self._victims)
        return self._random.choice(one_of_each(victim, f"pod-{self._random.randrange(1000)}"))

    def _sealed(self, event: AnyEvent, data: bytes | None = None, event_id: str = "") -> bytes:
        self._number += 1
        return codec.seal(
            Envelope(
                id=event_id or f"{agent_name(self._node)}:b1:{self._number}",
                type=event.TYPE,
                v=event.VERSION,
                key=event.key,
                ts=0,
                data=msgspec.Raw(codec.encode(event) if data is None else data),
            )
        )


# --- clients of the extender and the console --------------------------------------------------


class HostileClient:
    """Opens sockets to an HTTP server and sends requests that no regular client sends."""

    def __init__(self, address: str, paths: list[str], seed: int) -> None:
        self.attempts: Counter[str] = Counter()
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._paths = paths
        self._random = random.Random(seed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_repeat(self._quick, PAUSE_S))
            for _ in range(5):
                tasks.create_task(_repeat(self._unfinished, PAUSE_S))

    async def _quick(self) -> None:
        await self._send(
            self._random.choice(
                (
                    self._noise,
                    self._foreign_host,
                    self._cross_site,
                    self._wrong_json,
                    self._long_head,
                    self._two_lengths,
                    self._hostile_names,
                    self._path_tricks,
                )
            )
        )

    async def _send(self, kind: Callable[[], bytes]) -> None:
        self.attempts[kind.__name__.removeprefix("_")] += 1
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_connection(self._host, self._port)
                try:
                    writer.write(kind())
                    await writer.drain()
                    await reader.read(1000)
                finally:
                    writer.close()

    async def _unfinished(self) -> None:
        """Promises a large body and sends a part of it, slowly."""
        self.attempts["unfinished"] += 1
        head = self._head("POST", "Content-Length: 60000000\r\n")
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(self._host, self._port)
            try:
                writer.write(head)
                for _ in range(40):
                    writer.write(b"[" * 1_000_000)
                    await writer.drain()
                    await asyncio.sleep(PAUSE_S)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    def _head(self, verb: str, more: str = "", host: str = "") -> bytes:
        path = self._random.choice(self._paths)
        told = host or f"{self._host}:{self._port}"
        return f"{verb} {path} HTTP/1.1\r\nHost: {told}\r\n{more}\r\n".encode()

    def _post(self, body: bytes, more: str = "Content-Type: application/json\r\n") -> bytes:
        return self._head("POST", f"{more}Content-Length: {len(body)}\r\n") + body

    def _noise(self) -> bytes:
        return self._random.randbytes(self._random.choice((1, 100, 10_000)))

    def _foreign_host(self) -> bytes:
        return self._head("GET", host="evil.example")

    def _cross_site(self) -> bytes:
        return self._post(b"{}", "Content-Type: text/plain\r\nOrigin: https://evil.example\r\n")

    def _wrong_json(self) -> bytes:
        return self._post(self._random.choice((*NOT_REQUESTS, self._random.randbytes(300))))

    def _long_head(self) -> bytes:
        return self._head("GET", f"X-Long: {'x' * 200_000}\r\n")

    def _two_lengths(self) -> bytes:
        return self._head("POST", "Content-Length: 5\r\nContent-Length: 50\r\n") + b"hello"

    def _path_tricks(self) -> bytes:
        path = self._random.choice(
            ("/../../etc/passwd", "/%2e%2e/v1", "//evil.example/x", "/v1%2fpods", "/explain/%00")
        )
        return f"GET {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n\r\n".encode()

    def _hostile_names(self) -> bytes:
        name = self._random.choice(("p?dryRun=All&x=", "../x", "x" * 9000, "a\0b", "A_B", ""))
        cpu = self._random.choice(("1e14", "20T", "9e15", "1e400", "-1", "0x10", "1" * 5000))
        vram = self._random.choice(("0" * 11 + "1" + "0" * 5000, "0000001" + "0" * 23, "NaN"))
        body = {
            "Pod": {
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "uid": secrets.token_hex(8),
                    "annotations": {"gpu-extender.mle.com/vram-mb": vram},
                },
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            },
            "NodeNames": [name, "n1"],
            "PodName": name,
            "PodNamespace": name,
            "PodUID": "u",
            "Node": name,
        }
        return self._post(msgspec.json.encode(body))


# --- a tenant ---------------------------------------------------------------------------------


class HostileTenant:
    """Creates objects at the ends of what a kube-apiserver accepts."""

    def __init__(self, server: Running, seed: int, pause_s: float = 0.05) -> None:
        self.attempts: Counter[str] = Counter()
        self._server = server
        self._random = random.Random(seed)
        self._pause_s = pause_s
        self._number = 0

    async def run(self) -> None:
        await _repeat(self._attempt, self._pause_s)

    async def _attempt(self) -> None:
        path, tree = self._random.choice((self._pod, self._pod, self._node, self._card))()
        try:
            await self._server.put(path, tree)
            self.attempts[tree["kind"]] += 1
        except KubernetesRefused:
            self.attempts[f"{tree['kind']} refused by the API server"] += 1

    def _name(self, kind: str) -> str:
        self._number += 1
        long = "x" * 200 if self._random.random() < 0.1 else ""
        return f"hostile-{kind}-{self._number}{long}"

    def _pod(self) -> tuple[str, dict[str, Any]]:
        choose = self._random.choice
        annotations = {
            "gpu-extender.mle.com/vram-mb": choose(
                ("0" * 11 + "1" + "0" * 5000, "0000001" + "0" * 23, "1e999", "20480", "\u0000")
            ),
            "joulie.io/workload-class": choose(("performance", "PERFORMANCE", "x" * 10_000)),
            "kubernetes.io/config.source": "file",
            "kubernetes.io/config.mirror": "forged",
        }
        requests = {
            "cpu": choose(("1e14", "20T", "1", "9e15", "1n", "999999999999999999999")),
            "memory": choose(("1Ei", "9e18", "1", "64Mi", "1e30")),
            "nvidia.com/gpu": choose(("0", "1", "9000000000000000", "8")),
        }
        return "/api/v1/namespaces/default/pods", {
            "kind": "Pod",
            "metadata": {"name": self._name("pod"), "annotations": annotations},
            "spec": {
                "nodeName": choose(("", "n1", "no-such-node", "n" * 250)),
                "containers": [
                    {
                        "name": "c",
                        "image": "none",
                        "resources": {
                            "requests": requests,
                            "limits": {"nvidia.com/gpu": requests["nvidia.com/gpu"]},
                        },
                    }
                ],
            },
        }

    def _node(self) -> tuple[str, dict[str, Any]]:
        choose = self._random.choice
        huge = choose(("9223372036854775807", "1e18", "8"))
        return "/api/v1/nodes", {
            "kind": "Node",
            "metadata": {
                "name": self._name("node"),
                "labels": {"joulie.io/managed": "true", "joulie.io/hw.gpu-count": "9" * 60},
            },
            "status": {
                "allocatable": {
                    "cpu": choose(("1e15", "96")),
                    "memory": "1Ei",
                    "nvidia.com/gpu": huge,
                    "amd.com/gpu": huge,
                    "gpu.intel.com/i915": huge,
                },
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }

    def _card(self) -> tuple[str, dict[str, Any]]:
        choose = self._random.choice
        return "/apis/gpu.mle.com/v1alpha1/gpus", {
            "apiVersion": "gpu.mle.com/v1alpha1",
            "kind": "GPU",
            "metadata": {"name": self._name("gpu")},
            "spec": {
                "uuid": choose(("GPU-1", "x" * 100_000, "a\u0000b", "")),
                "nodeName": choose(("n1", "x" * 5000)),
                "model": choose(("A100", "x" * 20_000)),
                "totalVRAMmb": choose((81_920, 2**62, -1)),
            },
        }


Attacker = HostileAgent | HostileClient | HostileTenant
