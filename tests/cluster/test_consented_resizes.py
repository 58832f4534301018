"""Requests of pods that consent, changed through `pods/resize` of a real kube-apiserver, under
exactly the rights of deploy/."""

import asyncio
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from bus_kit.clock import NOON
from joulie_bus.errors import KubernetesRefused
from joulie_bus.events import ContainerRequest, ResizeOrdered
from joulie_operator.apply.requests_back import give_requests_back
from joulie_operator.apply.resize_writer import ResizeWriter
from joulie_operator.facts.resizable_pods import CONSENT, OWN, RESIZED, resizable
from joulie_operator.kube.api_client import ApiServer, object_path
from joulie_operator.observe.consenting_pods import ConsentingPods
from joulie_operator.planning.resizes import ResizablePod
from kube_conditions import PODS
from kube_real import DEPLOY, Running, Tree

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("server", ["real"], indirect=True),
]
OWN_SIZE = (ContainerRequest("c", 2000, 4 << 30),)
SMALL = (ContainerRequest("c", 500, 1 << 30),)


async def may_resize(server: Running) -> None:
    """Grants the rights of deploy/rbac-requests.yaml."""
    for tree in yaml.safe_load_all((DEPLOY / "rbac-requests.yaml").read_text()):
        await server.put(server.place(tree["kind"]), tree)


def consenting(name: str) -> Tree:
    resources = {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"cpu": "4"}}
    container = {"name": "c", "image": "none", "resources": resources}
    return {
        "metadata": {"name": name, "labels": {CONSENT: "in-place"}},
        "spec": {"nodeName": "n0", "containers": [container]},
    }


async def runs(server: Running, name: str) -> None:
    pod = (await server.all(PODS))[name]
    running = pod | {"status": pod["status"] | {"phase": "Running"}}
    await server.api.replace(object_path(PODS, name, "status"), running)


async def found(api: ApiServer) -> ResizablePod:
    listed = await ConsentingPods(api, "in-place").found({})
    [pod] = [resizable(each, listed.around) for each in listed.pods]
    assert pod is not None
    return pod


def order(pod: ResizablePod) -> ResizeOrdered:
    named: dict[str, Any] = {"node": pod.node, "uid": pod.uid, "pod": f"default/{pod.name}"}
    return ResizeOrdered(**named, change="lower", original=pod.own, before=pod.present, after=SMALL)


async def refusal_of_limits(operator: ApiServer) -> str:
    """A policy is in force some moments after it was made."""
    for cores in range(5, 300):
        resources = {"limits": {"cpu": str(cores)}}
        body = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
        try:
            await operator.merge(object_path(PODS, "web-0", "resize"), body)
        except KubernetesRefused as error:
            return error.why
        await asyncio.sleep(0.1)
    return "none"


async def test_the_documented_rights_change_requests_and_give_them_back_and_nothing_else(
    server: Running,
) -> None:
    await may_resize(server)
    await server.put(PODS, consenting("web-0"))
    await runs(server, "web-0")
    async with ApiServer.of(server.kubeconfig("operator")) as operator:
        writer, pod = ResizeWriter(operator), await found(operator)
        assert (pod.consent, pod.present, pod.original, pod.forbids) == (
            *("in-place", OWN_SIZE),
            *(None, None),
        )

        await writer.carry_out(pod, order(pod), NOON)
        lowered = await found(operator)
        assert (lowered.present, lowered.original, lowered.ordered_at) == (SMALL, OWN_SIZE, NOON)
        [container] = (await server.all(PODS))["web-0"]["spec"]["containers"]
        assert container["resources"]["limits"] == {"cpu": "4"}

        assert "no limit" in await refusal_of_limits(operator)
        note = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"app": "other"}}}
        with pytest.raises(KubernetesRefused, match="only its own mark"):
            await operator.apply(object_path(PODS, "web-0", "status"), note)
        other = lowered._replace(uid="0f1a6a5e-0000-4000-8000-000000000000")
        with pytest.raises(KubernetesRefused):
            await writer.write(other, OWN_SIZE)

        await writer.write(lowered, lowered.own)
        await writer.unmark(lowered)

    meta = (await server.all(PODS))["web-0"]["metadata"]
    assert (RESIZED in meta["labels"], OWN in meta.get("annotations", {})) == (False, False)


async def test_a_release_gives_the_own_requests_back(server: Running) -> None:
    await may_resize(server)
    await server.put(PODS, consenting("web-0"))
    await runs(server, "web-0")
    async with ApiServer.of(server.kubeconfig("operator")) as operator:
        pod = await found(operator)
        await ResizeWriter(operator).carry_out(pod, order(pod), NOON)
    done = await give_requests_back(server.api)

    assert (done.pods, done.left) == (1, [])
    [container] = (await server.all(PODS))["web-0"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "2", "memory": "4Gi"}
