"""The extender with a real kube-scheduler and the blocks of deploy/, if available."""

import asyncio
import contextlib
import json
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml  # type: ignore[import-untyped]

from joulie_bus.runtime.ports import free_port
from joulie_extender.gpu.fit import WANTS_CARDS
from joulie_extender.rules.eco import WANTS_PERFORMANCE
from joulie_operator.resources.custom_resources import GPUS
from joulie_process import joulie
from kube_builders import articles_pod, card, pod, schedulable
from kube_conditions import (
    NODES,
    PODS,
    TIMEOUT_S,
    held_by,
    placed,
    pod_of,
    profiles,
    profiles_are,
    refused,
    remaining_pods,
    wait_until,
)
from kube_real import DEPLOY, PLACES, SCHEDULER, Running, program_or_skip
from kube_scheduled import deployed_block, scheduling

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
ONLY_REAL = pytest.mark.parametrize("server", ["real"], indirect=True)
# A hot loop calls 50 times a second. Only waiting shows that no call comes.
QUIET_S = 20.0
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CORES = 96  # of a node
KIND = {"apiVersion": GPUS.removeprefix("/apis/").removesuffix("/gpus"), "kind": "GPU"}


class Scheduled(NamedTuple):
    """A cluster whose kube-scheduler calls the extender."""

    server: Running
    joulie: Process
    scheduler: Process
    extender: str

    async def asked_about(self, name: str) -> list[str]:
        """The verbs of the newest calls about a pod."""
        uid = (await pod_of(self.server, name))["metadata"]["uid"]
        return await asyncio.to_thread(self._asked_about, uid)

    def _asked_about(self, uid: str) -> list[str]:
        try:
            with urlopen(f"http://{self.extender}/explain/{uid}") as page:
                return [answer["verb"] for answer in json.load(page)["answers"]]
        except HTTPError as error:
            error.close()
            return []


@contextlib.asynccontextmanager
async def scheduled(
    server: Running, tmp_path: Path, block: str = "kube-scheduler.yaml", **environ: str
) -> AsyncGenerator[Scheduled, None]:
    """Runs everything with one block of deploy/."""
    program_or_skip(SCHEDULER)
    operator, data = server.kubeconfig("operator"), tmp_path / "data"
    extender = f"127.0.0.1:{free_port()}"
    async with (
        joulie("up", operator, data, TIMEOUT_S, EXTENDER_ADDR=extender, **environ) as ours,
        scheduling(server, deployed_block(block, extender)) as theirs,
    ):
        yield Scheduled(server, ours, theirs, extender)


def asks(
    name: str, workload: str, *, on: str = "", cores: int = 1, priority: str = ""
) -> dict[str, Any]:
    """A pod without a grace period: an eviction removes it at once."""
    made = pod(name, workload=workload, namespace="default")
    resources = {"requests": {"cpu": str(cores), "memory": "16Mi"}}
    made["spec"]["containers"] = [{"name": "c", "image": "none", "resources": resources}]
    made["spec"]["terminationGracePeriodSeconds"] = 0
    made["spec"] |= {"nodeSelector": {"kubernetes.io/hostname": on}} if on else {}
    made["spec"] |= {"priorityClassName": priority} if priority else {}
    return made


async def taken_by_others(server: Running, cores: int) -> list[str]:
    """Fills every node with a pod of low priority."""
    others = {f"other-{name}": name for name in await server.all(NODES)}
    await server.put(PRIORITIES, {"metadata": {"name": "urgent"}, "value": 1000})
    await server.put(
        PODS, *[asks(name, "standard", on=on, cores=cores) for name, on in others.items()]
    )
    await wait_until(placed(server, *others))
    return sorted(others)


@ONLY_REAL
async def test_a_real_scheduler_keeps_performance_pods_off_eco_nodes_and_survives_the_extender(
    server: Running, tmp_path: Path
) -> None:
    names = [f"fast-{number}" for number in range(4)]
    async with scheduled(server, tmp_path) as cluster:
        await wait_until(profiles_are(server, performance=2, eco=2))
        found = await profiles(server)
        an_eco_node = next(name for name, profile in found.items() if profile == "eco")
        await server.put(PODS, *[asks(name, "performance") for name in names])
        await server.put(PODS, asks("refused", "performance", on=an_eco_node))
        await server.put(PODS, asks("slow", "standard", on=an_eco_node))
        await wait_until(placed(server, *names, "slow"))
        await wait_until(refused(server, "refused", WANTS_PERFORMANCE))
        pods = await server.all(PODS)
        cluster.joulie.kill()
        await cluster.joulie.wait()
        await server.put(PODS, asks("late", "performance"))
        await wait_until(placed(server, "late"))
        assert cluster.scheduler.returncode is None

    assert {found[pods[name]["spec"]["nodeName"]] for name in names} == {"performance"}
    assert "nodeName" not in pods["refused"]["spec"]


@ONLY_REAL
async def test_a_pod_refused_by_all_nodes_is_filtered_twice_then_waits_and_evicts_no_pod(
    server: Running, tmp_path: Path
) -> None:
    """With many nodes: an unordered list of few could be equal twice by chance."""
    await server.put(NODES, *[schedulable(f"n{number}") for number in range(4, 16)])
    async with scheduled(server, tmp_path, STATIC_HP_FRAC="0") as cluster:
        await wait_until(profiles_are(server, eco=16))
        others = await taken_by_others(server, cores=1)
        await server.put(PODS, asks("urgent", "performance", priority="urgent"))
        await wait_until(refused(server, "urgent", WANTS_PERFORMANCE))
        await asyncio.sleep(QUIET_S)

        assert await remaining_pods(server, others) == others
        assert await cluster.asked_about("urgent") == ["filter", "filter"]


@ONLY_REAL
async def test_a_refused_pod_of_high_priority_evicts_no_pod(
    server: Running, tmp_path: Path
) -> None:
    async with scheduled(server, tmp_path, STATIC_HP_FRAC="0") as cluster:
        await wait_until(profiles_are(server, eco=4))
        others = await taken_by_others(server, cores=CORES)
        await server.put(PODS, asks("urgent", "performance", priority="urgent"))
        await wait_until(refused(server, "urgent", "0/4 nodes are available"))
        await asyncio.sleep(QUIET_S)

        assert await remaining_pods(server, others) == others
        assert await cluster.asked_about("urgent") == ["preempt"]


@ONLY_REAL
async def test_a_pod_of_high_priority_preempts_only_where_it_may_run(
    server: Running, tmp_path: Path
) -> None:
    async with scheduled(server, tmp_path, STATIC_HP_FRAC="0.25"):
        await wait_until(profiles_are(server, performance=1, eco=3))
        found = await profiles(server)
        others = await taken_by_others(server, cores=CORES)
        await server.put(PODS, asks("urgent", "performance", priority="urgent"))
        await wait_until(placed(server, "urgent"))
        on = (await pod_of(server, "urgent"))["spec"]["nodeName"]

        assert found[on] == "performance"
        assert await remaining_pods(server, others) == [
            name for name in others if name != f"other-{on}"
        ]


async def may_bind(server: Running) -> None:
    """Grants the rights of deploy/rbac-extender.yaml."""
    for tree in yaml.safe_load_all((DEPLOY / "rbac-extender.yaml").read_text()):
        path = PLACES[tree["kind"]].format(namespace=tree["metadata"].get("namespace", ""))
        await server.put(path, tree)


@ONLY_REAL
async def test_the_extender_binds_gpu_pods_of_a_real_scheduler_and_no_card_is_given_twice(
    server: Running, tmp_path: Path
) -> None:
    """The node has three allocatable GPUs; two cards are known."""
    await server.put(NODES, schedulable("gpu", gpus=3))
    await server.put(GPUS, *[KIND | card(uuid, "gpu") for uuid in ("GPU-1", "GPU-2")])
    await may_bind(server)
    settings = {"EXTENDER_BINDS": str(server.kubeconfig("extender"))}
    names = [f"training-{number}" for number in range(3)]
    async with scheduled(server, tmp_path, "kube-scheduler-split.yaml", **settings):
        await wait_until(held_by(server, "", ""))
        await server.put(PODS, *map(articles_pod, names[:2]))
        await wait_until(placed(server, *names[:2]))
        await wait_until(held_by(server, *names[:2]))
        await server.put(PODS, articles_pod(names[2]), asks("plain", "standard"))
        await wait_until(placed(server, "plain"))
        await wait_until(refused(server, names[2], WANTS_CARDS))
        pods = await server.all(PODS)

    given = [pods[name]["metadata"]["annotations"].get("joulie.io/gpus", "") for name in names]
    assert sorted(given) == ["", "GPU-1", "GPU-2"]
    assert "nodeName" not in pods[names[2]]["spec"]
