"""docs/other-schedulers.md: what holds beside autoscalers, other schedulers and their scores."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from joulie_answers.doctor.judgement.versions import numbers
from joulie_bus.runtime.ports import free_port
from joulie_extender.rules.eco import WANTS_PERFORMANCE
from joulie_process import joulie
from kube_builders import pod, schedulable
from kube_conditions import (
    NODES,
    PODS,
    TIMEOUT_S,
    placed,
    pod_of,
    profiles,
    profiles_are,
    refused,
    wait_until,
)
from kube_real import DEPLOY, SCHEDULER, Running, Tree, program_or_skip
from kube_scheduled import deployed_block, scheduling
from kube_versions import reported

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
ONLY_REAL = pytest.mark.parametrize("server", ["real"], indirect=True)
PAGE = (Path(__file__).parents[2] / "docs/other-schedulers.md").read_text()
# Name, first version, weight, and what follows from it.
PLUGINS = re.findall(
    r"^\| (\w+) \| (any|1\.\d+) \| (\d) \| (\d+) \| (\d+) \| (\d+) of 10 \|$", PAGE, re.M
)
SHARES = re.findall(r"^\| (\d) \| (\d+) \| (\d+) \| (\d+) % \| (\d+) % \|$", PAGE, re.M)
OLDER, NEWER = "v1.34.1", "v1.37.2"
SECOND = "second-scheduler"
PROFILE = "joulie.io/power-profile"
KUBECONFIG: Tree = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "nowhere",
    "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "none"}}],
    "clusters": [{"name": "nowhere", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "none", "user": {}}],
}


def scheduler() -> Path:
    return program_or_skip(SCHEDULER)


async def default_weights(directory: Path) -> dict[str, int]:
    """The weights of the plugins that score, from the configuration that kube-scheduler writes."""
    kubeconfig, config, found = (directory / name for name in ("kube", "config", "found"))
    kubeconfig.write_text(yaml.safe_dump(KUBECONFIG))
    block: Tree = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
    }
    config.write_text(yaml.safe_dump(block))
    flags = (f"--config={config}", f"--write-config-to={found}", f"--cert-dir={directory}")
    process = await asyncio.create_subprocess_exec(scheduler(), *flags)
    assert await process.wait() == 0
    (profile,) = yaml.safe_load(found.read_text())["profiles"]
    enabled = profile["plugins"]["multiPoint"]["enabled"]
    return {plugin["name"]: plugin["weight"] for plugin in enabled if plugin["weight"]}


def documented_weights(version: str) -> dict[str, int]:
    return {
        row[0]: int(row[2])
        for row in PLUGINS
        if row[1] == "any" or numbers(row[1]) <= numbers(version)
    }


async def test_the_table_of_weights_is_that_of_a_real_scheduler(tmp_path: Path) -> None:
    assert documented_weights(reported(scheduler())) == await default_weights(tmp_path)


def test_what_the_page_and_the_configuration_add_up_follows_from_the_table_of_weights() -> None:
    totals = [100 * sum(documented_weights(version).values()) for version in (OLDER, NEWER)]
    shares = []
    for weight, top in ((int(row[0]), int(row[1])) for row in SHARES):
        most = 10 * weight * top
        shares.append((weight, top, most, *(round(100 * most / (most + all_)) for all_ in totals)))
    texts = [path.read_text() for path in DEPLOY.glob("kube-scheduler*.yaml")]

    for _, _, weight, *rest in PLUGINS:
        once = int(weight)
        assert [int(each) for each in rest] == [100 * once, 10 * once, 10 * once]
    assert len(SHARES) == 5
    assert [tuple(map(int, row)) for row in SHARES] == shares
    assert len(texts) == 3
    for text in texts:
        found = re.search(r"# (\d+), and from .* on (\d+) to pods with", text)
        assert found is not None
        assert [int(each) for each in found.groups()] == totals


def asks(
    name: str, *, scheduler_name: str = "", on: Tree | None = None, workload: str = ""
) -> Tree:
    made: dict[str, Any] = pod(name, workload=workload, namespace="default")
    made["spec"]["containers"] = [{"name": "c", "image": "none"}]
    made["spec"] |= {"schedulerName": scheduler_name} if scheduler_name else {}
    made["spec"] |= {"nodeSelector": on} if on else {}
    return made


async def nodes_of(server: Running, names: list[str]) -> list[str]:
    return [(await pod_of(server, name))["spec"]["nodeName"] for name in names]


@ONLY_REAL
async def test_two_schedulers_and_two_profiles_see_one_truth(
    server: Running, tmp_path: Path
) -> None:
    """The first scheduler has two profiles, the second one has one. All call one extender."""
    scheduler()
    extender = f"127.0.0.1:{free_port()}"
    first = deployed_block("kube-scheduler.yaml", extender)
    second = first | {"profiles": [{"schedulerName": SECOND}]}
    first = first | {"profiles": [*first["profiles"], {"schedulerName": "second-profile"}]}
    operator, data = server.kubeconfig("operator"), tmp_path / "data"
    schedulers = ["default-scheduler", "second-profile", SECOND]
    names = [f"{scheduler_name}-{number}" for scheduler_name in schedulers for number in range(4)]
    async with (
        joulie("up", operator, data, TIMEOUT_S, EXTENDER_ADDR=extender),
        scheduling(server, first),
        scheduling(server, second, name=SECOND),
    ):
        await wait_until(profiles_are(server, performance=2, eco=2))
        found = await profiles(server)
        eco = {"kubernetes.io/hostname": min(n for n, each in found.items() if each == "eco")}
        for name in names:
            by = name.rpartition("-")[0]
            await server.put(PODS, asks(name, scheduler_name=by, workload="performance"))
        for by in schedulers:
            refusal = asks(f"no-{by}", scheduler_name=by, on=eco, workload="performance")
            await server.put(PODS, refusal)
        await wait_until(placed(server, *names))
        for by in schedulers:
            await wait_until(refused(server, f"no-{by}", WANTS_PERFORMANCE))
        on = await nodes_of(server, names)

    assert {found[node] for node in on} == {"performance"}


@ONLY_REAL
async def test_without_extenders_as_in_a_simulation_only_a_constraint_keeps_a_pod_off_eco_nodes(
    server: Running, tmp_path: Path
) -> None:
    """Autoscalers simulate kube-scheduler without its extenders."""
    scheduler()
    operator, data = server.kubeconfig("operator"), tmp_path / "data"
    async with joulie("up", operator, data, TIMEOUT_S, STATIC_HP_FRAC="0"):
        await wait_until(profiles_are(server, eco=4))
    config = deployed_block("kube-scheduler.yaml", "") | {"extenders": []}
    async with scheduling(server, config):
        await server.put(PODS, asks("annotated", workload="performance"))
        await server.put(PODS, asks("constrained", on={PROFILE: "performance"}))
        await wait_until(placed(server, "annotated"))
        await wait_until(refused(server, "constrained", "node affinity/selector"))


@ONLY_REAL
async def test_a_reserved_pool_labelled_performance_takes_performance_pods_and_stays_unplanned(
    server: Running, tmp_path: Path
) -> None:
    scheduler()
    pooled = schedulable("pool-1")
    pooled["metadata"]["labels"] |= {PROFILE: "performance", "joulie.io/reserved": "true"}
    await server.put(NODES, pooled)
    extender = f"127.0.0.1:{free_port()}"
    operator, data = server.kubeconfig("operator"), tmp_path / "data"
    settings = {"EXTENDER_ADDR": extender, "STATIC_HP_FRAC": "0"}
    async with (
        joulie("up", operator, data, TIMEOUT_S, **settings),
        scheduling(server, deployed_block("kube-scheduler.yaml", extender)),
    ):
        await wait_until(profiles_are(server, eco=4))
        selector = {PROFILE: "performance"}
        await server.put(PODS, asks("selects", on=selector), asks("any", workload="performance"))
        await wait_until(placed(server, "selects", "any"))
        nodes = await server.all(NODES)

    assert await nodes_of(server, ["selects", "any"]) == ["pool-1", "pool-1"]
    assert nodes["pool-1"]["metadata"]["labels"][PROFILE] == "performance"
