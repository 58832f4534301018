"""Records what a real kube-scheduler answers about random pods, in the format of kube_worlds.

    KUBE_BIN=.kube/bin-1.37.2 python tests/kit/kube/kube_recorder.py SEED WORLDS FILE

The paths of the kits have to be on PYTHONPATH.
"""

import asyncio
import contextlib
import gzip
import json
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from http_server import serving
from joulie_bus.errors import KubernetesRefused
from kube_random import APPS, HEAVY, NAMESPACES, SYSTEM_LABEL, RandomWorld
from kube_real import ASSETS, PLACES, Running, program, real_server
from kube_scheduled import scheduling
from kube_worlds import AskedPod, World

Tree = dict[str, Any]
NODES = "/api/v1/nodes"
RUNTIMES = "/apis/node.k8s.io/v1/runtimeclasses"
REPLICAS = "/apis/apps/v1/namespaces/{namespace}/replicasets"
BOUND, ASKED = 8, 10  # pods of a world: at most so many before, and so many in turn
POLL_S = 0.005
SCORED = re.compile(
    r'"Plugin scored node for pod" pod="([^"]+)" plugin="([^"]+)" node="([^"]+)" score=(-?\d+)'
)


class Recorder:
    """Of one scheduler, which calls it as an extender that rejects nothing."""

    def __init__(self, server: Running, log: Path) -> None:
        self._server, self._log = server, log
        self._feasible: dict[str, list[str]] = {}
        self._scores: dict[str, dict[str, dict[str, int]]] = {}
        self._read = 0
        self._owners: list[Tree] = []

    async def answer(self, request: web.Request) -> web.Response:
        asked = await request.json()
        metadata = asked["Pod"]["metadata"]
        names = asked["NodeNames"]
        self._feasible[f"{metadata['namespace']}/{metadata['name']}"] = names
        return web.json_response({"NodeNames": names})

    async def prepare(self) -> None:
        """What does not change from world to world, before the scheduler begins."""
        overhead = {"podFixed": {"cpu": "250m", "memory": "120Mi"}}
        await self._server.put(
            RUNTIMES, {"metadata": {"name": HEAVY}, "handler": "h", "overhead": overhead}
        )
        for namespace, labels in NAMESPACES.items():
            if namespace != "default":
                named = {"metadata": {"name": namespace, "labels": labels}}
                await self._server.put(PLACES["Namespace"], named)
            for app in APPS:
                await self._prepare(namespace, app)

    async def _prepare(self, namespace: str, app: str) -> None:
        selected, name = {"app": app}, f"{app}-{namespace}"
        template = {
            "metadata": {"labels": selected},
            "spec": {"containers": [{"name": "c", "image": "x"}]},
        }
        spec = {"replicas": 0, "selector": {"matchLabels": selected}, "template": template}
        path = REPLICAS.format(namespace=namespace)
        made = await self._server.api.create(path, {"metadata": {"name": name}, "spec": spec})
        uid = msgspec.json.decode(made)["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
        self._owners.append(owner | {"name": name, "uid": uid})
        if app == APPS[0]:  # a Service selects them, too
            port = {"port": 80}
            service = {"metadata": {"name": app}, "spec": {"selector": selected, "ports": [port]}}
            await self._server.put(PLACES["Service"].format(namespace=namespace), service)

    async def world(self, seed: str, number: int) -> World:
        made = RandomWorld(seed, number)
        nodes = made.nodes()
        await self._server.put(NODES, *nodes)
        await self._sees(made)
        pods = [await self._bound(made, f"b{at}") for at in range(BOUND)]
        asked = [await self._asked(made, f"p{at}") for at in range(ASKED)]
        for name in made.names:
            await self._server.api.delete(f"{NODES}/{name}")
        known = {name: {**labels, SYSTEM_LABEL: name} for name, labels in NAMESPACES.items()}
        return World(number, nodes, pods, asked, known)

    async def _sees(self, made: RandomWorld) -> None:
        """Waits until the scheduler has the nodes of this world, and no others."""
        for at in range(200):
            name = f"{made.prefix}-probe{at}"
            spec = {
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "c", "image": "x"}],
                "terminationGracePeriodSeconds": 0,
            }
            metadata = {"name": name, "namespace": "default", "labels": {}}
            await self._create({"metadata": metadata, "spec": spec})
            await self._decided("default", name)
            await self._server.api.delete(f"{_pods('default')}/{name}")
            if set(self._feasible.get(f"default/{name}", ())) == set(made.names):
                return
        raise AssertionError(f"the scheduler does not see the nodes of {made.prefix}")

    async def _bound(self, made: RandomWorld, name: str) -> Tree:
        is_ending = made.is_ending()
        spec = {"terminationGracePeriodSeconds": 3600} if is_ending else {}
        found = await self._valid(made, name, nodeName=made.bound_to(), **spec)
        if is_ending:
            path = f"{_pods(found['metadata']['namespace'])}/{found['metadata']['name']}"
            await self._server.api.delete(path)
            found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return found

    async def _asked(self, made: RandomWorld, name: str) -> AskedPod:
        tree = await self._valid(made, name)
        namespace, name = tree["metadata"]["namespace"], tree["metadata"]["name"]
        decided = await self._decided(namespace, name)
        node = decided["spec"].get("nodeName", "")
        if not node:
            await self._server.api.delete(f"{_pods(namespace)}/{name}")
        self._read_scores()
        key = f"{namespace}/{name}"
        app = tree["metadata"]["labels"]["app"]
        has_owner = bool(tree["metadata"].get("ownerReferences"))
        return AskedPod(
            tree,
            self._feasible.get(key, []),
            self._scores.get(key, {}),
            node,
            _why(decided),
            {"app": app} if has_owner or app == APPS[0] else {},
        )

    async def _valid(self, made: RandomWorld, name: str, **spec: Any) -> Tree:
        """The first pod that the API server takes: some have a port twice, or request less as a
        whole than their containers do."""
        while True:
            tree = made.pod(name, self._owners)
            tree["spec"] |= spec
            with contextlib.suppress(KubernetesRefused):
                return await self._create(tree)

    async def _create(self, tree: Tree) -> Tree:
        """As the API server keeps it: with defaults, and what admission adds."""
        path = _pods(tree["metadata"]["namespace"])
        found: Tree = msgspec.json.decode(await self._server.api.create(path, tree))
        kept = ("name", "namespace", "labels", "ownerReferences")
        found["metadata"] = {k: v for k, v in found["metadata"].items() if k in kept}
        del found["status"]
        return found

    async def _decided(self, namespace: str, name: str) -> Tree:
        while True:
            read = await self._server.api.get(f"{_pods(namespace)}/{name}")
            assert read is not None
            found: Tree = msgspec.json.decode(read)
            if found["spec"].get("nodeName") or _why(found):
                return found
            await asyncio.sleep(POLL_S)

    def _read_scores(self) -> None:
        scores: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
        with self._log.open() as lines:
            lines.seek(self._read)
            for pod, plugin, node, points in SCORED.findall(lines.read()):
                scores[pod][plugin][node] = int(points)
            self._read = lines.tell()
        self._scores = {pod: dict(found) for pod, found in scores.items()}


def _pods(namespace: str) -> str:
    return PLACES["Pod"].format(namespace=namespace)


def _why(pod: Tree) -> str:
    conditions = pod.get("status", {}).get("conditions", ())
    found = (each for each in conditions if each["type"] == "PodScheduled")
    return next((each.get("message", "") for each in found if each["status"] == "False"), "")


@contextlib.asynccontextmanager
async def recorder(directory: Path) -> AsyncGenerator[Recorder, None]:
    assets = program(ASSETS, "kube-apiserver").parent
    async with real_server(directory / "server", assets, bare=True) as server:
        found = Recorder(server, server.directory / "kube-scheduler.log")
        await found.prepare()
        async with serving(found.answer) as url:
            configuration = _configuration(url)
            async with scheduling(server, configuration, flags=["-v=10"]):
                yield found


def _configuration(url: str) -> Tree:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100,
        "clientConnection": {"qps": 1000, "burst": 1000},
        "extenders": [
            {
                "urlPrefix": f"http://{urlsplit(url).netloc}",
                "filterVerb": "filter",
                "nodeCacheCapable": True,
                "httpTimeout": "30s",
            }
        ],
    }


async def recorded_worlds(directory: Path, seed: str, worlds: int) -> list[World]:
    async with recorder(directory) as found:
        return [await found.world(seed, number) for number in range(worlds)]


def lines_of(worlds: list[World]) -> Iterator[bytes]:
    for world in worlds:
        yield json.dumps(msgspec.to_builtins(world), separators=(",", ":")).encode() + b"\n"


def main() -> None:
    seed, worlds, file = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(recorded_worlds(Path(directory) / "d", seed, int(worlds)))
    Path(file).write_bytes(gzip.compress(b"".join(lines_of(found)), mtime=0))


if __name__ == "__main__":
    main()
