"""What Events on placed pods add to the requests of a real cluster: `make cluster-ha`.

The kubelet starts each pod, and sends the status and the Events that belong to it. The same pods
arrive with the usual settings and without Events. kwok plays a second node that suits less:
kube-scheduler asks for no scores where one node is left, and then there is no Event.
"""

import asyncio
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from joulie_operator.cluster_settings import POD_EVENTS_PCT
from kube_real import started
from node_cluster import Cluster, Tree, running_cluster
from node_drill import NAMESPACE, is_running, pods, ready, run, say, scheduled_namespace, until
from node_objects import TOLERATION, fake_node, volumes, waiting_pod
from node_programs import NODE, kwok

pytestmark = [pytest.mark.anyio, pytest.mark.drill, pytest.mark.timeout(3600)]
SHOP = "shop"
PODS = 60  # at one per second; all of them fit on the node
PATH = f"/api/v1/namespaces/{SHOP}/pods"
# The node of the kubelet is preferred, and the other one is possible.
HERE = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
PREFERRED = [{"weight": 100, "preference": {"matchExpressions": [HERE]}}]
AFFINITY = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": PREFERRED}}
WITHOUT = ["--reset-then-reuse-values", "--set", r"settings.APPLY_RATE=425\,pod-events=0"]
CHART = ["joulie", "deploy/chart", "--namespace", NAMESPACE]


class Requests(NamedTuple):
    """What the API server has answered."""

    all: int
    events: int  # those of the operator on pods

    def since(self, before: "Requests") -> "Requests":
        return Requests(self.all - before.all, self.events - before.events)

    def added(self) -> float:
        """The Events as a share of the other requests."""
        return self.events / (self.all - self.events)


async def answered(cluster: Cluster) -> Requests:
    text = await cluster.told("get", "--raw", "/metrics")
    counters = [line for line in text.splitlines() if line.startswith("apiserver_request_total{")]
    events = [
        each
        for each in cluster.server.asked("operator")
        if each["verb"] == "create" and each["objectRef"]["resource"] == "events"
    ]
    return Requests(round(sum(float(line.rpartition(" ")[2]) for line in counters)), len(events))


async def installed(cluster: Cluster) -> None:
    await volumes(cluster)
    await run(cluster, ["helm", "install", *CHART, "--create-namespace"])
    await cluster.told("label", "node", NODE, "joulie.io/managed=true")
    await scheduled_namespace(cluster, SHOP)
    await ready(cluster)


def small_node() -> Tree:
    """A node that Joulie does not manage, and that is soon full."""
    tree = fake_node("fake")
    del tree["metadata"]["labels"]["joulie.io/managed"]
    room = {"cpu": "10m", "memory": "16Mi", "pods": "110"}
    return tree | {"status": {"allocatable": room, "capacity": room}}


def pod(name: str) -> Tree:
    tree = waiting_pod(name, SHOP)
    tree["spec"] |= {"tolerations": [TOLERATION], "affinity": AFFINITY}
    return tree


async def pods_arrive(cluster: Cluster, name: str) -> Requests:
    """The requests meanwhile. This program adds one per pod, as a controller would. Each pod is a
    workload of its own, the most expensive case.
    """
    before, began_s = await answered(cluster), time.monotonic()
    for number in range(PODS):
        await asyncio.sleep(max(0, began_s + number - time.monotonic()))
        await cluster.server.api.create(PATH, pod(f"{name}{number}"))
    found = (await answered(cluster)).since(before)
    took_s = time.monotonic() - began_s
    say(
        f"{name}: {PODS} pods in {took_s:.0f} s, {found.all} requests, "
        f"{found.events} of them Events ({found.added():.2%} in addition)"
    )

    async def all_run() -> bool:
        return sum(map(is_running, await pods(cluster, SHOP))) == PODS

    await until(all_run, f"{name}: all pods run")
    here = [each["spec"]["nodeName"] for each in await pods(cluster, SHOP)].count(NODE)
    say(f"{name}: {here} pods run on the node of the kubelet")
    await cluster.told("delete", "pods", "--all", "-n", SHOP, "--timeout=240s")
    return found


async def test_events_on_pods_add_at_most_their_share_of_requests(place: Path) -> None:
    async with running_cluster(place) as cluster, started(kwok(cluster.server), place):
        await cluster.server.api.create("/api/v1/nodes", small_node())
        await installed(cluster)
        found = await pods_arrive(cluster, "with")
        assert 0 < found.added() <= POD_EVENTS_PCT / 100
        await run(cluster, ["helm", "upgrade", *CHART, *WITHOUT, "--wait", "--timeout=6m"])
        await ready(cluster)
        assert (await pods_arrive(cluster, "without")).events == 0
