"""A node that breaks while others sleep, as the node lifecycle controller of a real
kube-controller-manager sees it (`.ci/kube kube-controller-manager` builds one). Leases stand for
kubelets."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.tasks import background
from joulie_operator.desired.objects import EXCLUSION_LABEL, labels_of
from joulie_operator.kube.api_client import object_path
from joulie_process import joulie
from joulie_projections.state.state import NodeState
from kube_builders import schedulable
from kube_conditions import NODES, PODS, TIMEOUT_S, Condition, wait_until
from kube_real import CONTROLLERS, Running, Tree, program_or_skip, started

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("server", ["real"], indirect=True),
]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
ASLEEP = [f"n{number}" for number in range(4, 10)]  # six of ten: above 55 % of the zone
BROKEN = "n3"
LOST_AFTER_S = 10  # longer than a renewal takes on a busy machine
PASSES_S = 5.0  # of the controller, one a second
UNREACHABLE = "node.kubernetes.io/unreachable"


class Kubelets:
    """Reports for the nodes that have a file in the directory, unless they are broken."""

    def __init__(self, server: Running, power: Path) -> None:
        self._server, self.power = server, power
        self.broken = set[str]()

    def switch(self, *names: str, on: bool) -> None:
        for name in names:
            (self.power / name).touch() if on else (self.power / name).unlink()

    @property
    def on(self) -> set[str]:
        return {file.name for file in self.power.iterdir()}

    async def run(self) -> None:
        while True:
            ready = await _ready(self._server)
            for name in sorted(self.on - self.broken):
                await self._renew(name)
                if ready[name] != "True":
                    await self._report(name)
            await asyncio.sleep(1)

    async def _report(self, name: str) -> None:
        conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        status = {"status": {"conditions": conditions}}
        path = object_path(NODES, name, "status")
        await self._server.api.apply(path, body | status, manager="kubelet")

    async def _renew(self, name: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        body = lease | {"metadata": {"name": name}, "spec": spec}
        await self._server.api.apply(object_path(LEASES, name), body, manager="kubelet")


@pytest.fixture
async def kubelets(server: Running, tmp_path: Path) -> AsyncGenerator[Kubelets, None]:
    """Of ten nodes in one zone, before a controller that gives up a node after ten seconds."""
    program = program_or_skip(CONTROLLERS)
    await server.put(NODES, *map(schedulable, ASLEEP))
    await wait_until(_exists(server, "/api/v1/namespaces/kube-node-lease"))
    (tmp_path / "power").mkdir()
    made = Kubelets(server, tmp_path / "power")
    made.switch(*await server.all(NODES), on=True)
    command = [
        str(program),
        f"--kubeconfig={server.kubeconfig('admin')}",
        "--controllers=node-lifecycle-controller,taint-eviction-controller",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        f"--cert-dir={server.directory / 'controllers-certificates'}",
        "--node-monitor-period=1s",
        f"--node-monitor-grace-period={LOST_AFTER_S}s",
        "--node-eviction-rate=10",  # nodes a second; one in ten seconds by default
    ]
    async with background(made.run(), "kubelets"), started(command, server.directory):
        yield made


async def test_the_pods_of_a_broken_node_are_replaced_while_others_sleep_only_by_their_label(
    server: Running, kubelets: Kubelets
) -> None:
    await server.put(PODS, _impatient("p", BROKEN))
    kubelets.switch(*ASLEEP, on=False)
    await wait_until(_lost(server, *ASLEEP))
    kubelets.broken.add(BROKEN)
    await wait_until(_lost(server, BROKEN))
    await asyncio.sleep(PASSES_S)
    without = (UNREACHABLE in await _evicts(server, BROKEN), await _is_going(server, "p"))
    for name in ASLEEP:
        await server.api.apply(
            object_path(NODES, name), _as_asleep(name), manager="joulie-operator"
        )
    await wait_until(lambda: _is_going(server, "p"))

    assert without == (False, False)
    assert UNREACHABLE in await _evicts(server, BROKEN)
    assert not [name for name in ("n0", "n1", "n2") if await _evicts(server, name)]


async def test_the_operator_lets_six_of_ten_nodes_sleep_and_a_broken_one_loses_its_pods(
    server: Running, kubelets: Kubelets, tmp_path: Path
) -> None:
    """From the order to sleep to the wake, with the rights of the manifests."""
    for number in range(4):
        await server.put(PODS, _impatient(f"p{number}", f"n{number}"))
    environ = {
        "POLICY_TYPE": "consolidate_and_sleep",
        "POLICY_NUMBERS": "reserve=0,sleep_after_s=1,max_share=0.6,max_step=1",
        "POWER_CONTROLLERS": str(_controllers(tmp_path, kubelets.power)),
    }
    config = server.kubeconfig("operator")
    async with joulie("up", config, tmp_path / "data", TIMEOUT_S, **environ):
        await wait_until(_lost(server, *ASLEEP))
        switched_off, excluded = set(ASLEEP) - kubelets.on, await _excluded(server)
        kubelets.broken.add(BROKEN)
        await wait_until(lambda: _is_going(server, f"p{BROKEN[1:]}"))
        await server.put(PODS, _impatient("waits", ""))
        await wait_until(lambda: _has_woken(server, kubelets))

    assert switched_off == set(ASLEEP)
    assert excluded == set(ASLEEP)


async def _has_woken(server: Running, kubelets: Kubelets) -> bool:
    """Whether a node is on again, and is counted."""
    woken = kubelets.on & set(ASLEEP)
    return bool(woken) and not woken & await _excluded(server)


async def _excluded(server: Running) -> set[str]:
    nodes = await server.all(NODES)
    return {name for name, each in nodes.items() if EXCLUSION_LABEL in each["metadata"]["labels"]}


def _controllers(place: Path, power: Path) -> Path:
    """A power controller by which a node is on while it has a file."""
    file, path = power / "{node}", place / "controllers.toml"
    path.write_text(
        f"""[[controller]]
        kind = "command"
        on = ["touch", "{file}"]
        off = ["rm", "{file}"]
        state = ["test", "-e", "{file}"]
        """
    )
    return path


def _impatient(name: str, on: str) -> Tree:
    """A pod that fills a node, and leaves one that is lost after a second, not after Kubernetes'
    five minutes."""
    leaves = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}
    containers = [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "90"}}}]
    tolerations = [leaves | {"tolerationSeconds": 1}]
    spec = {"containers": containers, "tolerations": tolerations}
    return {"metadata": {"name": name}, "spec": spec | ({"nodeName": on} if on else {})}


def _as_asleep(name: str) -> Tree:
    labels = labels_of(NodeState(ordinal=0, at=0, profile="eco", power_state="asleep"))
    assert EXCLUSION_LABEL in labels
    meta = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta}


def _exists(server: Running, path: str) -> Condition:
    async def condition() -> bool:
        return await server.api.get(path) is not None

    return condition


def _lost(server: Running, *names: str) -> Condition:
    async def condition() -> bool:
        ready = await _ready(server)
        return {ready[name] for name in names} == {"Unknown"}

    return condition


async def _ready(server: Running) -> dict[str, str]:
    return {
        name: each["status"]
        for name, node in (await server.all(NODES)).items()
        for each in node["status"]["conditions"]
        if each["type"] == "Ready"
    }


async def _evicts(server: Running, name: str) -> list[str]:
    """The taints of a node that evict pods."""
    taints = (await server.all(NODES))[name]["spec"].get("taints", ())
    return [each["key"] for each in taints if each["effect"] == "NoExecute"]


async def _is_going(server: Running, name: str) -> bool:
    """Whether the pod was evicted; without a kubelet it stays, marked for deletion."""
    pod = (await server.all(PODS)).get(name)
    return pod is None or "deletionTimestamp" in pod["metadata"]
