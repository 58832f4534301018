"""The chart on a real cluster with a kubelet and containers: `make cluster`."""

import contextlib
import re
import shlex
import time
from pathlib import Path

import pytest

from joulie_operator.resources.custom_resources import MANAGER
from kube_real import ROOT
from node_cluster import Cluster, Tree, running_cluster
from node_drill import (
    NAMESPACE,
    PARTS,
    SHOP,
    arriving,
    explained,
    explanation,
    first_decision,
    is_running,
    killed,
    placed,
    pods,
    processes_of,
    ready,
    recomputed,
    run,
    say,
    scaled,
    scheduled_namespace,
    until,
)
from node_objects import deployment, everything, settled, volumes, waiting_pod
from readme_commands import INSIDE

pytestmark = [pytest.mark.anyio, pytest.mark.drill, pytest.mark.timeout(3600)]
MANAGED = "joulie.io/managed"  # set by the administrator
FIRST_DECISION_S = 120  # after `helm install`, on a machine that has the image


async def installed(cluster: Cluster) -> None:
    """The two commands of the README, word for word, and the first decision."""
    await volumes(cluster)
    install, label = (command.split() for command in INSIDE[:2])
    began_s = time.monotonic()
    await run(cluster, install)
    await run(cluster, label)
    await scheduled_namespace(cluster, SHOP)
    await first_decision(cluster)
    took_s = time.monotonic() - began_s
    say(f"the first decision is explained {took_s:.0f} s after the installation began")
    assert took_s <= FIRST_DECISION_S
    await cluster.apply(deployment("web", SHOP, replicas=2))
    names = [pod["metadata"]["name"] for pod in await has(cluster, "web-", 2)]
    await placed(cluster, *names)
    await explained(cluster, *names)
    await run(cluster, ["kubectl", "joulie", "explain", f"{SHOP}/{names[0]}"])


def patch_of_the_page() -> list[str]:
    """The command that classifies a Deployment which exists."""
    text = (ROOT / "docs/classify-pods.md").read_text()
    found = re.search(r"^\$ kubectl (patch deployment api .*)$", text, re.MULTILINE)
    assert found
    return shlex.split(found[1])


async def classified(cluster: Cluster) -> None:
    """A Deployment gets its class by the command of the page, and its new pod tells it."""
    await cluster.apply(deployment("api", SHOP, replicas=1))
    (old,) = await has(cluster, "api-", 1)
    await placed(cluster, old["metadata"]["name"])
    await cluster.told("-n", SHOP, *patch_of_the_page())

    async def is_told() -> bool:
        others = [each["metadata"]["name"] for each in await owned(cluster, "api-")]
        texts = [await explanation(cluster, f"{SHOP}/{name}") for name in others]
        return any(re.search(r"class +performance, .*rule: annotation", text) for text in texts)

    await until(is_told, "the class of a patched Deployment is explained")


async def owned(cluster: Cluster, prefix: str) -> list[Tree]:
    found = await pods(cluster, SHOP)
    return [pod for pod in found if pod["metadata"]["name"].startswith(prefix)]


async def has(cluster: Cluster, prefix: str, number: int) -> list[Tree]:
    """The pods of a Deployment, once there are so many."""

    async def complete() -> bool:
        return len(await owned(cluster, prefix)) == number

    await until(complete, f"{number} pods of {prefix} exist")
    return await owned(cluster, prefix)


async def examined(cluster: Cluster) -> None:
    """`helm test` keeps the pod of `joulie doctor` if it fails, and tells nothing of it."""
    try:
        say(await cluster.helm("test", "joulie", "--namespace", NAMESPACE))
    except AssertionError:
        say((await cluster.kubectl("logs", "-n", NAMESPACE, "joulie-test")).text)
        raise


async def each_part_killed(cluster: Cluster) -> None:
    """A pod that arrives just after a part died is placed, without an extender by no decision."""
    for part in PARTS:
        number = killed(part)
        assert number, f"no process of {part}"
        say(f"killed {part} ({number})")
        name = f"after-{part}"
        await cluster.apply(waiting_pod(name, SHOP))
        await placed(cluster, name)
        if part != "extender":
            await explained(cluster, name)
        await ready(cluster)  # the next one dies alone


async def upgraded(cluster: Cluster) -> None:
    """The same chart with another setting: every component is replaced."""
    words = ["upgrade", "joulie", "deploy/chart", "--namespace", NAMESPACE]
    async with arriving(cluster, "during-upgrade", SHOP) as names:
        await run(
            cluster,
            [
                "helm",
                *words,
                "--reset-then-reuse-values",
                "--wait",
                "--timeout=6m",
                "--set",
                "settings.STATIC_HP_FRAC=0.6",
            ],
        )
    say(f"upgraded while {len(names)} pods arrived")
    await placed(cluster, *names)
    await counted(cluster, names)
    async with arriving(cluster, "during-rollback", SHOP) as names:
        await run(
            cluster,
            ["helm", "rollback", "joulie", "1", "--namespace", NAMESPACE, "--wait", "--timeout=6m"],
        )
    say(f"rolled back while {len(names)} pods arrived")
    await placed(cluster, *names)
    await counted(cluster, names)
    await ready(cluster)


async def counted(cluster: Cluster, names: list[str]) -> None:
    """How many pods have a decision. Without an extender, kube-scheduler places pods by itself."""
    await explained(cluster, names[-1])
    texts = [await explanation(cluster, f"{SHOP}/{name}") for name in names]
    say(f"{sum(map(bool, texts))} of {len(names)} pods have an explained decision")


async def placed_without_joulie(cluster: Cluster) -> None:
    """The kube-scheduler of the chart needs no other component."""
    await scaled(cluster, 0)
    await cluster.apply(waiting_pod("without-joulie", SHOP))
    await placed(cluster, "without-joulie")
    assert not processes_of("extender")
    await scaled(cluster, 1)
    await ready(cluster, least=7)


async def uninstalled(cluster: Cluster) -> None:
    """The label of the namespace stays. A pod that no scheduler can place waits for ours."""
    await cluster.apply(deployment("too-large", SHOP, replicas=1, cpu="1000"))
    await has(cluster, "too-large-", 1)
    await run(
        cluster, ["helm", "uninstall", "joulie", "--namespace", NAMESPACE, "--wait", "--timeout=5m"]
    )
    await cluster.told("scale", "-n", SHOP, "deploy/web", "--replicas=3")

    async def the_cluster_places() -> bool:
        web, large = await owned(cluster, "web-"), await owned(cluster, "too-large-")
        of_web, of_large = (
            {pod["spec"]["schedulerName"] for pod in found} for found in (web, large)
        )
        is_placed = len(web) == 3 and all(map(is_running, web)) and "default-scheduler" in of_web
        return is_placed and of_large == {"default-scheduler"}

    await until(the_cluster_places, "the cluster's own scheduler has all pods that wait")


async def nothing_is_left(cluster: Cluster, before: set[str]) -> None:
    """The log stays until its namespace is deleted."""
    left = await everything(cluster, NAMESPACE)
    kept = sorted(name for name in left if f"/{NAMESPACE}/" in name and "/kube-root" not in name)
    say("left with the log: " + ", ".join(kept))
    await cluster.told("delete", "namespace", SHOP, NAMESPACE, "--timeout=120s")
    definitions = ("nodetwins.joulie.io", "nodehardwares.joulie.io", "gpus.gpu.mle.com")
    await cluster.told("delete", "crd", *definitions)  # they stay, with the objects of others
    await cluster.told("delete", "persistentvolume", "--all")

    async def is_as_before() -> bool:
        return await everything(cluster) <= before

    with contextlib.suppress(TimeoutError):  # the list below says what there is
        await until(is_as_before, "the cluster is as it was")
    found = await everything(cluster) - before
    say(f"left in the cluster: {', '.join(sorted(found)) or 'nothing'}")
    assert found == set()
    for node in (await cluster.read("nodes", "--show-managed-fields"))["items"]:
        labels = node["metadata"]["labels"]
        assert [name for name in labels if name.startswith("joulie.io/")] == [MANAGED]
        writers = {entry["manager"] for entry in node["metadata"]["managedFields"]}
        assert MANAGER not in writers


async def test_an_installation_from_its_first_command_to_its_end(place: Path) -> None:
    async with running_cluster(place) as cluster:
        say("a node is ready")
        before = await settled(cluster)
        await installed(cluster)
        await ready(cluster)
        await examined(cluster)
        await classified(cluster)
        await each_part_killed(cluster)
        await upgraded(cluster)
        await recomputed(cluster)
        await placed_without_joulie(cluster)
        await uninstalled(cluster)
        await nothing_is_left(cluster, before)
