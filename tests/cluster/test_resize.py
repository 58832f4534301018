"""A pod that is resized in place through a real kube-apiserver: the twin of its node has what
kube-scheduler counts, before, during and after it."""

from pathlib import Path

import pytest

from joulie_process import joulie
from kube_builders import asking
from kube_conditions import PODS, TIMEOUT_S, Condition, wait_until
from kube_real import RULES, Running, Tree, program_or_skip
from kube_rules import requested
from seen_positions import committed

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("server", ["real"], indirect=True),
]
REPLACED, MERGED = "application/merge-patch+json", "application/strategic-merge-patch+json"
SMALL, LARGE = {"cpu": "1", "memory": "1Gi"}, {"cpu": "3", "memory": "2Gi"}


async def resize(server: Running, requests: Tree) -> None:
    container = {"name": "c", "resources": {"requests": requests}}
    body = {"spec": {"containers": [container]}}
    await server.api._send("PATCH", f"{PODS}/resized/resize", {}, body, MERGED)


async def report(server: Running, requests: Tree, refused: str = "") -> None:
    """As a kubelet reports what it has allocated, and why it does not allocate what is asked."""
    container = {
        **{"name": "c", "image": "none", "imageID": "none", "ready": True, "restartCount": 0},
        "allocatedResources": requests,
        "resources": {"requests": requests},
    }
    pending = {"type": "PodResizePending", "status": "True", "reason": refused}
    status = {
        "phase": "Running",
        "containerStatuses": [container],
        "conditions": [pending] if refused else [],
    }
    body = {"status": status}
    await server.api._send("PATCH", f"{PODS}/resized/status", {}, body, REPLACED)


def counts(server: Running, data: Path, milli: int) -> Condition:
    """Whether the node has this load, for kube-scheduler and in the state of Joulie."""
    rules = program_or_skip(RULES)

    async def condition() -> bool:
        pods = await server.all(PODS)
        of_scheduler = requested(rules, pods.values())
        assert sum(cpu for cpu, _ in of_scheduler) == milli
        state = committed(data).state
        known = {pod.pod.name: pod.pod for pod in state.pods.values()}
        if known.keys() != pods.keys() or "n0" not in state.nodes:
            return False
        of_joulie = [(known[name].cpu_milli, known[name].memory_bytes) for name in pods]
        return of_joulie == of_scheduler and state.nodes["n0"].load.cpu_milli == milli

    return condition


async def test_the_load_of_a_node_is_the_sum_of_what_kube_scheduler_counts(
    server: Running, tmp_path: Path
) -> None:
    program_or_skip(RULES)
    data = tmp_path / "data"
    for name in ("resized", "other"):
        made = asking(name, **SMALL)
        made["spec"]["nodeName"] = "n0"
        await server.put(PODS, made)
    async with joulie("up", server.kubeconfig("operator"), data, TIMEOUT_S):
        await wait_until(counts(server, data, 2000))
        await report(server, SMALL)
        await wait_until(counts(server, data, 2000))
        await resize(server, LARGE)
        await wait_until(counts(server, data, 4000))
        await report(server, SMALL, refused="Deferred")
        await wait_until(counts(server, data, 4000))
        await report(server, SMALL, refused="Infeasible")
        await wait_until(counts(server, data, 2000))
        await report(server, LARGE)
        await wait_until(counts(server, data, 4000))
        await resize(server, SMALL)
        await wait_until(counts(server, data, 4000))  # until the kubelet has done it
        await report(server, SMALL)
        await wait_until(counts(server, data, 2000))
