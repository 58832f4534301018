"""The webhook of the chart in its pod, behind its Service: `make cluster`."""

import base64
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from joulie_operator.desired.pod_patch import NOT_ECO
from node_cluster import Cluster, Tree, running_cluster
from node_drill import NAMESPACE, component_of, is_running, killed, pods, ready, run, say, until
from node_objects import volumes, waiting_pod

pytestmark = [pytest.mark.anyio, pytest.mark.drill, pytest.mark.timeout(3600)]
LAB = "lab"
INSTALL: str = (
    f"helm install joulie deploy/chart --namespace {NAMESPACE} --create-namespace "
    "--set scheduler.admission=webhook --set console.enabled=false --set ledger.enabled=false"
)
NUMBERS = itertools.count()


async def installed(cluster: Cluster) -> None:
    await volumes(cluster)
    await run(cluster, INSTALL.split())
    metadata = {
        "name": LAB,
        "labels": {"joulie.io/schedule": "true"},
        "annotations": {"joulie.io/workload-class": "performance"},
    }
    await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    await ready(cluster, least=7)
    assert (await cluster.read("mutatingadmissionpolicies"))["items"] == []


async def created(cluster: Cluster, name: str, namespace: str = LAB) -> Tree:
    await cluster.apply(waiting_pod(name, namespace))
    return dict(await cluster.read("pod", name, "-n", namespace))


def scheduler_of(pod: Tree) -> str:
    return str(pod["spec"]["schedulerName"])


def requirements_of(pod: Tree) -> Any:
    node = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = node.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms")
    return None if terms is None else [each["matchExpressions"] for each in terms]


async def changed(cluster: Cluster, what: str) -> Tree:
    """Pods are created until the webhook changes one. The API server finds its address a moment
    after it is ready.
    """
    made: list[Tree] = []

    async def one_is_changed() -> bool:
        made.append(await created(cluster, f"{what}-{len(made)}"))
        return scheduler_of(made[-1]) == "joulie" and requirements_of(made[-1]) is not None

    await until(one_is_changed, f"{what}: a pod is changed")
    return made[-1]


async def runs(cluster: Cluster, name: str) -> None:
    async def is_there() -> bool:
        found = {pod["metadata"]["name"]: pod for pod in await pods(cluster, LAB)}
        return is_running(found[name])

    await until(is_there, f"{name} runs")


async def has_replicas(cluster: Cluster, replicas: int) -> None:
    words = ["scale", "-n", NAMESPACE, "deploy/joulie-admission", f"--replicas={replicas}"]
    await cluster.told(*words)

    async def settled() -> bool:
        found = await pods(cluster, NAMESPACE)
        ours = [pod for pod in found if component_of(pod) == "admission"]
        return len(ours) == replicas and all(map(is_running, ours))

    await until(settled, f"the webhook has {replicas} replicas")


async def with_another_authority(cluster: Cluster) -> None:
    """The API server calls the webhook only with the certificate of its own authority."""
    name = "mutatingwebhookconfiguration/joulie-scheduler"
    root = (await cluster.read("configmap", "kube-root-ca.crt", "-n", NAMESPACE))["data"]["ca.crt"]
    kept = (await cluster.read(name))["webhooks"][0]["clientConfig"]["caBundle"]
    await patched(cluster, name, base64.b64encode(root.encode()).decode())

    async def is_refused() -> bool:
        return scheduler_of(await created(cluster, f"refused-{next(NUMBERS)}")) != "joulie"

    await until(is_refused, "another authority: a pod stays as it is")
    await patched(cluster, name, kept)


async def patched(cluster: Cluster, name: str, bundle: str) -> None:
    change = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}]
    await cluster.told("patch", name, "--type=json", "-p", json.dumps(change))


async def test_the_webhook_changes_pods_through_its_service_and_stops_none(place: Path) -> None:
    async with running_cluster(place) as cluster:
        await installed(cluster)
        pod = await changed(cluster, "first")
        say(f"schedulerName {scheduler_of(pod)}, required {requirements_of(pod)}")
        assert requirements_of(pod) == [[NOT_ECO]]
        await runs(cluster, pod["metadata"]["name"])
        assert scheduler_of(await created(cluster, "other", "default")) == "default-scheduler"

        await with_another_authority(cluster)
        await changed(cluster, "with-its-authority")

        await has_replicas(cluster, 0)
        alone = await created(cluster, "without-webhook")
        assert (scheduler_of(alone), requirements_of(alone)) == ("default-scheduler", None)
        await runs(cluster, "without-webhook")

        await has_replicas(cluster, 1)
        await changed(cluster, "again")
        assert killed("admission") == 1
        await created(cluster, "after-a-kill")
        await runs(cluster, "after-a-kill")
        await changed(cluster, "after-the-kill")
