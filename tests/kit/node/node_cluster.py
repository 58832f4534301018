"""A whole cluster of one node with real containers, and kubectl and helm beside it."""

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import node_network
import node_programs
from helm_chart import helm
from kube_real import ASSETS, BIN, ROOT, Running, program, real_server, started
from node_programs import IMAGES, NODE, socket_of

PATIENCE_S = 180.0
Tree = dict[str, Any]


class Said(NamedTuple):
    code: int
    text: str


class Cluster(NamedTuple):
    """A running cluster."""

    server: Running
    place: Path

    async def kubectl(self, *words: str, given: str = "") -> Said:
        """Runs kubectl as the administrator."""
        return await asyncio.to_thread(self._run, [str(BIN / "kubectl"), *words], given)

    async def told(self, *words: str, given: str = "") -> str:
        """What kubectl prints. It must succeed."""
        said = await self.kubectl(*words, given=given)
        assert said.code == 0, f"kubectl {' '.join(words)}: {said.text}"
        return said.text

    async def read(self, *words: str) -> Any:
        return json.loads(await self.told("get", *words, "-o", "json"))

    async def helm(self, *words: str) -> str:
        code, text = await asyncio.to_thread(
            helm, words, self.place, self.server.kubeconfig("admin")
        )
        assert code == 0, text
        return text

    async def apply(self, *trees: Tree) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": trees}
        await self.told("apply", "-f", "-", given=json.dumps(listed))

    def _run(self, command: Sequence[str], given: str) -> Said:
        path = f"{ROOT / '.venv/bin'}:{BIN}:{os.environ['PATH']}"
        admin = str(self.server.kubeconfig("admin"))
        done = subprocess.run(
            command,
            input=given,
            env={"PATH": path, "KUBECONFIG": admin, "HOME": str(self.place)},
            capture_output=True,
            text=True,
            check=False,
        )
        return Said(done.returncode, done.stdout if done.returncode == 0 else done.stderr)


@contextlib.asynccontextmanager
async def running_cluster(place: Path) -> AsyncGenerator[Cluster, None]:
    """What is started last ends first: the kubelet before the API server, containerd at the end."""
    network = node_network.make(place)
    async with contextlib.AsyncExitStack() as stack:
        runtime = node_programs.containerd(place, network)
        await stack.enter_async_context(started(runtime, place))
        await _imported(place)
        assets = program(ASSETS, "kube-apiserver").parent
        server = await stack.enter_async_context(
            real_server(place / "server", assets, bare=True, address=node_network.ADDRESS)
        )
        for command in (
            node_programs.controllers(server),
            node_programs.scheduler(server),
            node_programs.proxy(server, place),
            node_programs.dns(server, place),
            node_programs.kubelet(server, place),
        ):
            await stack.enter_async_context(started(command, place))
        cluster = Cluster(server, place)
        await _has_a_node(cluster)
        yield cluster


async def _imported(place: Path) -> None:
    """containerd has all images of .kube/images."""
    ctr = ["ctr", "--address", str(socket_of(place)), "--namespace", "k8s.io"]
    async with asyncio.timeout(PATIENCE_S):
        while (await _code([*ctr, "version"], place)) != 0:
            await asyncio.sleep(0.2)
    archives = sorted(IMAGES.glob("*.tar"))
    assert archives, f"no images in {IMAGES}; `.ci/cluster` makes them"
    for archive in archives:
        code = await _code([*ctr, "images", "import", str(archive)], place)
        assert code == 0, f"containerd refuses {archive}: {place / 'ctr.log'}"


async def _code(command: Sequence[str], place: Path) -> int:
    async with started(command, place) as process:
        return await process.wait()


async def _has_a_node(cluster: Cluster) -> None:
    wait = ["wait", f"node/{NODE}", "--for=condition=Ready", "--timeout=10s"]
    async with asyncio.timeout(PATIENCE_S):
        while (await cluster.kubectl(*wait)).code != 0:
            await asyncio.sleep(0.5)
