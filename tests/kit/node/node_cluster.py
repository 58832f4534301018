"""A whole cluster of nodes with real containers, and kubectl and helm beside it."""

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
from node_network import Node
from node_programs import IMAGES, socket_of

PATIENCE_S = 180.0
PATIENT_S = 300  # the machine may be slow
PAUSE, PAUSE_OF_THE_README = "localhost/pause:1", "registry.k8s.io/pause:3.10"
Tree = dict[str, Any]
# The class of claims that name none. A volume is chosen when its pod has a node.
STORAGE: Tree = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": "local",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}


class Said(NamedTuple):
    code: int
    text: str


class Cluster(NamedTuple):
    """A running cluster."""

    server: Running
    place: Path
    nodes: Sequence[Node]

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

    @property
    def environment(self) -> dict[str, str]:
        """The environment of an administrator: kubectl, helm and the commands of Joulie."""
        path = f"{ROOT / '.venv/bin'}:{BIN}:{os.environ['PATH']}"
        admin = str(self.server.kubeconfig("admin"))
        return {"PATH": path, "KUBECONFIG": admin, "HOME": str(self.place)}

    def _run(self, command: Sequence[str], given: str) -> Said:
        done = subprocess.run(
            command,
            input=given,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return Said(done.returncode, done.stdout if done.returncode == 0 else done.stderr)


@contextlib.asynccontextmanager
async def running_cluster(
    place: Path, nodes: int = 1, lost_after_s: int = PATIENT_S
) -> AsyncGenerator[Cluster, None]:
    """What is started last ends first: kubelets before the API server, containerd at the end."""
    made = node_network.nodes(place, nodes)
    async with contextlib.AsyncExitStack() as stack:

        async def runs(command: Sequence[str], log: str = "") -> None:
            await stack.enter_async_context(started(command, place, log))

        await _have_images(made)
        for node in made:
            await runs(node_programs.containerd(node), f"containerd-{node.name}")
        assets = program(ASSETS, "kube-apiserver").parent
        server = await stack.enter_async_context(
            real_server(place / "server", assets, bare=True, address=node_network.ADDRESS)
        )
        await runs(node_programs.controllers(server, lost_after_s))
        await runs(node_programs.scheduler(server))
        await runs(node_programs.dns(server, place))
        cluster = Cluster(server, place, made)
        await cluster.apply(STORAGE)
        for node in made:
            await runs(node_programs.proxy(server, node), f"kube-proxy-{node.name}")
            await runs(node_programs.kubelet(server, node), f"kubelet-{node.name}")
        for node in made:
            await _is_ready(cluster, node)
        yield cluster


async def _have_images(nodes: Sequence[Node]) -> None:
    """Each containerd finds all images of .kube/images. An import takes ten times the CPU of a
    copy, so that one imports, ends, and is copied.
    """
    first, *others = nodes
    async with started(node_programs.containerd(first), first.place, "import"):
        await _imported(first)
    for other in others:
        words = [str(node_programs.root_of(node)) for node in (first, other)]
        await asyncio.to_thread(subprocess.run, ["cp", "-a", *words], check=True)


async def _imported(node: Node) -> None:
    """containerd has all images, and the pod of the README finds its own."""
    archives = sorted(IMAGES.glob("*.tar"))
    assert archives, f"no images in {IMAGES}; `.ci/cluster` makes them"
    async with asyncio.timeout(PATIENCE_S):
        while await _ctr(node, "version") != 0:
            await asyncio.sleep(0.2)
    for words in (
        *(("images", "import", str(archive)) for archive in archives),
        ("images", "tag", PAUSE, PAUSE_OF_THE_README),
    ):
        assert await _ctr(node, *words) == 0, f"containerd refuses {words}: {node.place}/ctr.log"


async def _ctr(node: Node, *words: str) -> int:
    command = ["ctr", "--address", str(socket_of(node)), "--namespace", "k8s.io", *words]
    async with started(command, node.place) as process:
        return await process.wait()


async def _is_ready(cluster: Cluster, node: Node) -> None:
    wait = ["wait", f"node/{node.name}", "--for=condition=Ready", "--timeout=10s"]
    async with asyncio.timeout(PATIENCE_S):
        while (await cluster.kubectl(*wait)).code != 0:
            await asyncio.sleep(0.5)
