"""An older chart on a real cluster, upgraded to this one and rolled back: `make upgrade`.

Pods arrive all the time. On the way `helm test` finds a fault that was made.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

import older_version
from helm_chart import CHART, helm
from kube_real import ROOT
from node_cluster import Cluster, running_cluster
from node_drill import (
    NAMESPACE,
    PROJECTOR,
    arriving,
    component_of,
    is_running,
    lasting_pods,
    ready,
    run,
    say,
    scheduled_namespace,
    until,
    until_running,
    verified,
)
from node_objects import volumes

pytestmark = [pytest.mark.anyio, pytest.mark.drill, pytest.mark.timeout(3600)]
OLDER = ROOT / ".kube/older" / older_version.CHART
NEWER = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
SHOP = "shop"
BINDING = "mutatingadmissionpolicybinding/joulie-scheduler"
# The older chart has no hook for it. Code 1: the projector committed meanwhile.
REBUILD = ["sh", "-c", "joulie rebuild || test $? -eq 1"]
AT = ["--namespace", NAMESPACE, "--wait", "--timeout=6m"]


async def installed(cluster: Cluster) -> None:
    await volumes(cluster, NAMESPACE)
    words = ["helm", "install", "joulie", str(OLDER), "--namespace", NAMESPACE]
    await run(cluster, [*words, "--create-namespace"])
    await cluster.told("label", "node", "--all", "joulie.io/managed=true")
    await scheduled_namespace(cluster, SHOP)
    await ready(cluster, least=6)


async def decided(cluster: Cluster) -> set[str]:
    """The pods with an entry in the log; empty while the projector is replaced. The console of the
    older version does not start after the rollback.
    """
    words = ["exec", "-n", NAMESPACE, PROJECTOR, "--", "joulie", "decisions", "--limit", "100000"]
    said = await cluster.kubectl(*words)
    return set(re.findall(rf" {SHOP}/(\S+)", said.text)) if said.code == 0 else set()


@contextlib.asynccontextmanager
async def decided_later(cluster: Cluster, name: str) -> AsyncGenerator[list[str], None]:
    """Pods arrive. At the end of the block all run, and the last one is decided."""
    async with arriving(cluster, name, SHOP) as names:
        yield names

    async def the_last_is_decided() -> bool:
        return names[-1] in await decided(cluster)

    await until_running(cluster, names, SHOP)
    await until(the_last_is_decided, f"the last pod of {name} has a decision")
    say(f"{len((await decided(cluster)).intersection(names))} of {len(names)} pods have a decision")
    # A kubelet takes 110 pods at most.
    await cluster.told("delete", "pods", "--all", "-n", SHOP, "--timeout=240s")


async def helm_test_finds_a_fault(cluster: Cluster) -> None:
    """`helm test` passes, and fails without the binding of the policy."""
    words = ["test", "joulie", "--namespace", NAMESPACE]
    say(await cluster.helm(*words))
    binding = json.loads(await cluster.told("get", BINDING, "-o", "json"))
    await cluster.told("delete", BINDING)
    admin = cluster.server.kubeconfig("admin")
    code, _ = await asyncio.to_thread(helm, words, cluster.place, admin)
    said = await cluster.told("logs", "-n", NAMESPACE, "joulie-test")
    say(said)
    assert code != 0
    assert "no binding names the policy" in said
    metadata = {key: binding["metadata"][key] for key in ("name", "labels", "annotations")}
    await cluster.apply(binding | {"metadata": metadata})
    await cluster.helm(*words)


async def rolled_back(cluster: Cluster) -> None:
    """The console of the older version does not start with settings of the newer one in the log, so
    helm would wait for it in vain.
    """
    await run(cluster, ["helm", "rollback", "joulie", "1", "--namespace", NAMESPACE])

    async def the_others_run() -> bool:
        found = [pod for pod in await lasting_pods(cluster) if component_of(pod) != "console"]
        used = {each["image"] for pod in found for each in pod["spec"]["containers"]}
        is_older = not any(image.endswith(f"joulie:{NEWER}") for image in used)
        return is_older and len(found) >= 5 and all(map(is_running, found))

    await until(the_others_run, "all components but the console have the older version")

    async def is_rebuilt() -> bool:
        """The command ends with its container, where the projector refuses to continue."""
        words = ["exec", "-n", NAMESPACE, PROJECTOR, "--", *REBUILD]
        return (await cluster.kubectl(*words)).code == 0

    await until(is_rebuilt, "the rows are rebuilt")


async def until_arrived(names: list[str], number: int) -> None:
    while len(names) < number:
        await asyncio.sleep(0.5)


async def recomputed_of_both(cluster: Cluster) -> None:
    """All decisions and plans of both versions are recomputed, and the log is valid."""
    # Without standard error, which says what other code made.
    line = "joulie replay --json 2>/dev/null || test $? -eq 1"
    words = ["exec", "-n", NAMESPACE, "deploy/joulie-console", "--", "sh", "-c", line]
    replayed = json.loads(await cluster.told(*words))
    older_version.assert_recomputed(replayed)
    say(
        f"{replayed['decisions']} decisions and {replayed['plans']} plans are recomputed; "
        f"{replayed['mismatches']} states of other folds differ"
    )
    await verified(cluster)


async def uninstalled(cluster: Cluster) -> None:
    await run(cluster, ["helm", "uninstall", "joulie", *AT])

    async def nothing_is_left() -> bool:
        return not await cluster.told("get", "pods,jobs,roles", "-n", NAMESPACE, "-o", "name")

    await until(nothing_is_left, "no pod, Job and role is left")


@pytest.fixture
def chart() -> Path:
    if not OLDER.exists():
        pytest.skip("requires the older chart and its image: `make upgrade`")
    return OLDER


async def test_an_older_version_is_upgraded_and_rolled_back_while_pods_arrive(
    place: Path, chart: Path
) -> None:
    async with running_cluster(place) as cluster:
        say(f"a node is ready; the older chart is {chart}")
        await installed(cluster)
        async with decided_later(cluster, "older") as names:
            await until_arrived(names, 5)
        upgrade = ["helm", "upgrade", "joulie", str(CHART), *AT, "--reset-then-reuse-values"]
        async with decided_later(cluster, "during-upgrade"):
            await run(cluster, upgrade)
        await recomputed_of_both(cluster)
        await helm_test_finds_a_fault(cluster)
        async with decided_later(cluster, "during-rollback"):
            await rolled_back(cluster)
        before = await decided(cluster)
        async with decided_later(cluster, "during-second-upgrade"):
            await run(cluster, upgrade)
        assert before <= await decided(cluster)
        await recomputed_of_both(cluster)  # also what the older code decided after the rollback
        await uninstalled(cluster)
