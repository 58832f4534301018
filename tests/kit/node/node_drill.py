"""What the drills of tests/kubelet share: their steps, and the parts that they end."""

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from node_cluster import Cluster, Tree
from node_objects import waiting_pod
from node_programs import NODE

NAMESPACE = "joulie-system"
SHOP = "shop"  # whose pods our kube-scheduler places
PATIENCE_S = 240.0
# The process of each part, as it stands in its command line.
PARTS = {
    "nats": "nats-server --config",
    "projector": "joulie projector",
    "operator": "joulie operator",
    "extender": "joulie extender",
    "kube-scheduler": "kube-scheduler --config",
    "console": "joulie console",
    "ledger": "joulie ledger",
}
# Requests of all replicas must fit on one small node.
SMALL = {"requests": {"cpu": "20m", "memory": "64Mi"}}
# What `joulie explain` prints about a pod that has no decision yet: an answer, or an error.
WITHOUT_DECISION = (
    "No decision about it is in the log.",
    "No decision about ",
    "The log has no decisions yet",
    "was never filtered or scored",
)
# What kubectl prints when there is no container to run the command in, or when it was killed.
NOT_RUNNING = ("error:", "Error from server", "command terminated with exit code 137")
WEBHOOK = {"admission": "joulie admission"}


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


async def until(
    condition: Callable[[], Awaitable[bool]], what: str, patience_s: float = PATIENCE_S
) -> None:
    started_s = time.monotonic()
    async with asyncio.timeout(patience_s):
        while not await condition():
            await asyncio.sleep(0.5)
    say(f"{what}: after {time.monotonic() - started_s:.0f} s")


async def run(cluster: Cluster, command: list[str]) -> None:
    say(f"$ {' '.join(command)}")
    ask = cluster.helm if command[0] == "helm" else cluster.told
    said = await ask(*command[1:])
    if "explain" in command:
        say(said)


async def pods(cluster: Cluster, namespace: str) -> list[Tree]:
    return list((await cluster.read("pods", "-n", namespace))["items"])


def is_running(pod: Tree) -> bool:
    conditions = pod["status"].get("conditions", [])
    return "deletionTimestamp" not in pod["metadata"] and any(
        each["type"] == "Ready" and each["status"] == "True" for each in conditions
    )


def component_of(pod: Tree) -> str:
    """Empty for the pod of a Job."""
    return str(pod["metadata"]["labels"].get("app.kubernetes.io/component", ""))


async def scheduled_namespace(cluster: Cluster, name: str) -> None:
    """A namespace whose pods our kube-scheduler places."""
    metadata = {"name": name, "labels": {"joulie.io/schedule": "true"}}
    await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


@contextlib.asynccontextmanager
async def arriving(cluster: Cluster, name: str, namespace: str) -> AsyncGenerator[list[str], None]:
    """A pod arrives each second, all the while; yields their names."""
    names: list[str] = []

    async def arrive() -> None:
        while True:
            names.append(f"{name}-{len(names)}")
            await cluster.apply(waiting_pod(names[-1], namespace))
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(arrive())
        yield names
        task.cancel()


async def until_running(cluster: Cluster, names: Collection[str], namespace: str) -> None:
    async def all_run() -> bool:
        found = {pod["metadata"]["name"]: pod for pod in await pods(cluster, namespace)}
        return all(name in found and is_running(found[name]) for name in names)

    await until(all_run, f"{len(names)} pods run")


async def explanation(cluster: Cluster, pod: str) -> str:
    """What `joulie explain` prints in the pod of the console; empty without a decision, and while
    that pod does not run. A command that fails otherwise fails the drill."""
    words = ["exec", "-n", NAMESPACE, "deploy/joulie-console", "--", "joulie", "explain"]
    said = await cluster.kubectl(*words, pod)
    if any(text in said.text for text in WITHOUT_DECISION):
        return ""
    if said.code and said.text.startswith(NOT_RUNNING):
        return ""
    assert said.code == 0, f"joulie explain {pod}: {said.text}"
    return said.text


async def placed(cluster: Cluster, *names: str) -> None:
    """The pods run, and our scheduler bound them."""
    await until_running(cluster, names, SHOP)
    for pod in await pods(cluster, SHOP):
        if pod["metadata"]["name"] in names:
            assert pod["spec"]["schedulerName"] == "joulie"


async def explained(cluster: Cluster, *names: str) -> None:
    async def all_explained() -> bool:
        texts = [await explanation(cluster, f"{SHOP}/{name}") for name in names]
        return all("n1" in text for text in texts)

    await until(all_explained, f"{len(names)} pods are explained")


async def first_decision(cluster: Cluster) -> None:
    """Pods arrive until one is explained. Before the extender is ready, pods are placed without."""
    names: list[str] = []

    async def one_is_explained() -> bool:
        names.append(f"first-{len(names)}")
        await cluster.apply(waiting_pod(names[-1], SHOP))
        texts = [await explanation(cluster, f"{SHOP}/{name}") for name in names[-4:]]
        if text := next(filter(None, texts), ""):
            say(text)
        return bool(text)

    await until(one_is_explained, "a decision is explained")


def small_replicas(cluster: Cluster) -> Path:
    """A file of values with which all replicas of values-ha.yaml fit on the real node."""
    values: Tree = {
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        **{
            part: {"resources": SMALL} for part in (*PARTS, "scheduler") if part != "kube-scheduler"
        },
    }
    file = cluster.place / "small.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


async def lasting_pods(cluster: Cluster) -> list[Tree]:
    """The pods of the components, without those of Jobs."""
    found = [pod for pod in await pods(cluster, NAMESPACE) if "ownerReferences" in pod["metadata"]]
    return [pod for pod in found if pod["metadata"]["ownerReferences"][0]["kind"] != "Job"]


async def ready(cluster: Cluster, least: int = 8, patience_s: float = PATIENCE_S) -> None:
    """Every component of the chart runs."""

    async def all_ready() -> bool:
        found = await lasting_pods(cluster)
        return len(found) >= least and all(map(is_running, found))

    await until(all_ready, "all components are ready", patience_s)


COMPONENTS = "app.kubernetes.io/name=joulie,app.kubernetes.io/component!=scheduler"


async def scaled(cluster: Cluster, replicas: int) -> None:
    """All components but kube-scheduler get this number of replicas."""
    words = ["scale", "deployment,statefulset", "-n", NAMESPACE, "-l", COMPONENTS]
    await cluster.told(*words, f"--replicas={replicas}")
    if replicas:
        return

    async def only_the_scheduler_runs() -> bool:
        found = set(map(component_of, await lasting_pods(cluster)))
        return found - {"agent"} == {"scheduler"}  # a DaemonSet has no replicas

    await until(only_the_scheduler_runs, "all components have zero replicas")


def processes_of(part: str) -> list[int]:
    """The processes of a part. Only ours are in this place."""
    begins = re.compile(rf"(python\S* )?{re.escape((PARTS | WEBHOOK)[part])}")
    found = Path("/proc").glob("[0-9]*")
    return [int(process.name) for process in found if begins.match(line_of(process))]


def killed(part: str) -> int:
    """Kills the processes of a part, and returns how many."""
    found = processes_of(part)
    for process in found:
        os.kill(process, signal.SIGKILL)
    return len(found)


def line_of(process: Path) -> str:
    """The command line, with the names of programs instead of their paths."""
    try:
        words = (process / "cmdline").read_text().split("\0")
    except OSError:  # it has just ended
        return ""
    return " ".join(word if word.startswith("-") else Path(word).name for word in words)


async def told_by_joulie(cluster: Cluster, *words: str, pod: str = "deploy/joulie-console") -> str:
    """What a command prints in a pod."""
    return await cluster.told("exec", "-n", NAMESPACE, pod, "--", "joulie", *words)


PROJECTOR = "joulie-projector-0"


async def recomputed(cluster: Cluster) -> None:
    """Replays, and verifies in a pod that has the public key."""
    say(await told_by_joulie(cluster, "replay"))
    await verified(cluster)


async def verified(cluster: Cluster) -> None:
    say(await told_by_joulie(cluster, "verify", pod=PROJECTOR))
