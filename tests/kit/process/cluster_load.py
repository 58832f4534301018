"""Pods of a real API server that ask for cards: extenders place and bind them."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from go_http import CallFailed, Client
from joulie_bus.jetstream.connection import Address
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.roles import Role
from joulie_operator.resources.custom_resources import GPUS
from kube_builders import articles_pod, card, schedulable
from kube_conditions import NODES, PODS
from kube_real import (
    ASSETS,
    DEPLOY,
    PLACES,
    Running,
    Tree,
    program_or_skip,
    real_server,
)
from load import NODES as OTHER_NODES
from load import Load

CARDS = {f"g{node}": [f"GPU-{node}-{at}" for at in range(8)] for node in range(4)}
BIND_TIMEOUT_S = 5.0
ATTEMPTS = 20  # to bind; then kube-scheduler would begin anew
HOLD_S = 2.0  # a pod, its card
WHO = "joulie.io/gpus"
KIND = {"apiVersion": GPUS.removeprefix("/apis/").removesuffix("/gpus"), "kind": "GPU"}


@contextlib.asynccontextmanager
async def cluster(place: Path) -> AsyncGenerator[Running, None]:
    """An API server with all nodes, and the right of extenders to bind."""
    programs = program_or_skip(ASSETS, "kube-apiserver", "etcd").parent
    async with real_server(place, programs) as server:
        for tree in yaml.safe_load_all((DEPLOY / "rbac-extender.yaml").read_text()):
            namespace = tree["metadata"].get("namespace", "")
            await server.put(PLACES[tree["kind"]].format(namespace=namespace), tree)
        await server.put(NODES, *map(schedulable, OTHER_NODES))
        for node, uuids in CARDS.items():
            await server.put(NODES, schedulable(node, gpus=len(uuids)))
            await server.put(GPUS, *(KIND | card(uuid, node) for uuid in uuids))
        yield server


def kubeconfigs_of(server: Running | None) -> dict[Role, Path]:
    if server is None:
        return {}
    return {role: server.kubeconfig(role) for role in (Role.OPERATOR, Role.EXTENDER)}


def cards_of(pods: Mapping[str, Tree]) -> dict[str, list[str]]:
    """The pods that each card is given to, by their annotations."""
    found: dict[str, list[str]] = {}
    for name, pod in pods.items():
        for uuid in pod["metadata"].get("annotations", {}).get(WHO, "").split(","):
            if uuid:
                found.setdefault(uuid, []).append(name)
    return found


class ClusterLoad(Load):
    """Each pod exists, is bound by an extender, and is deleted a little later."""

    def __init__(
        self,
        extenders: Mapping[str, tuple[str, int]],
        broker: Callable[[], Address],
        seed: int,
        server: Running,
    ) -> None:
        super().__init__(extenders, broker, seed, pods_per_s=20)
        self._server = server
        self.bound = 0
        self.without_card = 0  # none was free, or known to be
        self.why: Counter[str] = Counter()  # of bindings that failed

    async def schedule(self) -> None:
        try:
            async with background(self._watch_cards(), "cards"):
                await super().schedule()
        finally:  # a caller may end while it deletes its pod
            for name in await self._server.all(PODS):
                await self._server.api.delete(f"{PODS}/{name}")

    async def _watch_cards(self) -> None:
        """Without end. A list is of one moment."""
        while True:
            shared = {
                uuid: names
                for uuid, names in cards_of(await self._server.all(PODS)).items()
                if len(names) > 1
            }
            assert not shared, f"held by two: {shared}"
            await asyncio.sleep(0.5)

    async def _place(self, clients: Mapping[str, Client], number: str) -> None:
        asked = articles_pod(f"pod-{number}")
        asked["spec"]["terminationGracePeriodSeconds"] = 0  # no kubelet ends it
        pod: Tree = json.loads(await self._server.api.create(PODS, asked))
        try:
            if await self._is_bound(clients, pod):
                self.bound += 1
                await asyncio.sleep(HOLD_S)
            else:
                self.without_card += 1
        finally:
            await self._server.api.delete(f"{PODS}/{pod['metadata']['name']}")

    async def _is_bound(self, clients: Mapping[str, Client], pod: Tree) -> bool:
        for _ in range(ATTEMPTS):
            node = await self._chosen(clients, pod)
            if node and await self._bind(clients, pod, node):
                await self._require_bound(pod, node)
                return True
            await asyncio.sleep(0.2)
        return False

    async def _chosen(self, clients: Mapping[str, Client], pod: Tree) -> str:
        uid = pod["metadata"]["uid"]
        names = self._draw.sample([*CARDS], len(CARDS))
        asked = {"Pod": pod, "Nodes": None, "NodeNames": names}
        filtered = json.loads(await self._ask(clients, "filter", uid, _encoded(asked)))
        if not (passed := filtered["NodeNames"]):
            return ""
        asked["NodeNames"] = passed
        scores = json.loads(await self._ask(clients, "prioritize", uid, _encoded(asked)))
        best: str = max(scores, key=lambda each: each["Score"])["Host"]
        return best

    async def _bind(self, clients: Mapping[str, Client], pod: Tree, node: str) -> bool:
        metadata = pod["metadata"]
        asked = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        replica = self._draw.choice([*clients])
        try:
            reply = await clients[replica].post("bind", _encoded(asked), BIND_TIMEOUT_S)
        except CallFailed:
            self.failed += 1
            return False
        if why := json.loads(reply)["Error"]:
            self.why[why.split(":")[0][:60]] += 1
        return not why

    async def _require_bound(self, pod: Tree, node: str) -> None:
        """A binding that was answered exists, with its card."""
        found = await self._server.api.get(f"{PODS}/{pod['metadata']['name']}")
        assert found is not None
        tree: Tree = json.loads(found)
        assert tree["spec"].get("nodeName") == node, tree
        assert tree["metadata"]["annotations"][WHO] in CARDS[node], tree


def _encoded(asked: Mapping[str, object]) -> bytes:
    return json.dumps(asked, separators=(",", ":")).encode()
