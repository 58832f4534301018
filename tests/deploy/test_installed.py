"""helm and the chart against a real kube-apiserver, from the command of the README to the end."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from helm_chart import CHART, NAMESPACE, helm, of_kind, rendered
from joulie_operator.resources.custom_resources import GPU_GROUP, GPUS, MANAGER, NODETWINS, VERSION
from joulie_process import joulie
from kube_builders import card, schedulable
from kube_conditions import NODES, TIMEOUT_S, Condition, profiles_are, wait_until
from kube_real import PLACES, Running
from readme_commands import AT_ONCE

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
JOULIE = [sys.executable, "-m", "joulie_cli.main"]


async def on_the_server(server: Running, home: Path, *words: str) -> str:
    """helm beside the server; it returns at once, because no controller runs."""
    code, said = await asyncio.to_thread(helm, words, home, server.kubeconfig("admin"))
    assert code == 0, said
    return said


async def installed(server: Running, home: Path) -> None:
    await on_the_server(server, home, *AT_ONCE[0].split()[1:])


async def secrets(server: Running) -> dict[str, Any]:
    found = await server.all(PLACES["Secret"].format(namespace=NAMESPACE))
    return {name: tree["data"] for name, tree in found.items() if name.startswith("joulie-")}


async def left(server: Running) -> list[str]:
    """Every object of the chart, in all kinds that it uses, and every Lease."""
    found = []
    for kind, path in PLACES.items():
        for namespace in (NAMESPACE, "default", "kube-system") if "{namespace" in path else ("",):
            for name, tree in (await server.all(server.place(kind, namespace))).items():
                if tree["metadata"].get("labels", {}).get("app.kubernetes.io/name") == "joulie":
                    found.append(f"{kind}/{name}")
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    return sorted([*found, *(f"Lease/{name}" for name in await server.all(leases))])


async def test_the_command_of_the_readme_installs_the_chart(server: Running, home: Path) -> None:
    await installed(server, home)

    made = await left(server)
    assert "Deployment/joulie-operator" in made
    assert "MutatingAdmissionPolicy/joulie-scheduler" in made
    assert "CustomResourceDefinition/nodetwins.joulie.io" in made


async def test_an_upgrade_keeps_passwords_keys_and_certificates(
    server: Running, home: Path
) -> None:
    await installed(server, home)
    before = await secrets(server)
    await on_the_server(
        server, home, "upgrade", "joulie", str(CHART), "-n", NAMESPACE, "--no-hooks"
    )

    assert set(before) >= {"joulie-nats-users", "joulie-nats-tls", "joulie-head-key"}
    assert await secrets(server) == before


async def test_pods_of_a_namespace_with_the_label_get_our_scheduler(
    server: Running, home: Path
) -> None:
    await installed(server, home)
    spec = {"containers": [{"name": "c", "image": "i"}]}
    for name, labels in (("with", {"joulie.io/schedule": "true"}), ("without", {})):
        await server.put(PLACES["Namespace"], {"metadata": {"name": name, "labels": labels}})

    async def scheduler_of(namespace: str, **more: str) -> str:
        path = PLACES["Pod"].format(namespace=namespace)
        tree = {"metadata": {"generateName": "p-"}, "spec": spec | more}
        made = yaml.safe_load(await server.api.create(path, tree))
        return str(made["spec"]["schedulerName"])

    async def is_in_force() -> bool:
        return await scheduler_of("with") == "joulie"

    await wait_until(is_in_force)
    assert await scheduler_of("without") == "default-scheduler"
    assert await scheduler_of("with", schedulerName="other") == "other"
    assert await scheduler_of("with", nodeName="n1") == "default-scheduler"


async def run_hook(server: Running, home: Path) -> str:
    """Runs the command of the hook with the account of the hook, as helm and the kubelet would."""
    trees = [tree for tree in rendered(home) if is_before_delete(tree)]
    for tree in trees:
        path = server.place(tree["kind"], NAMESPACE)
        await server.put(path, tree)
    [container] = of_kind(trees, "Job")["joulie-release"]["spec"]["template"]["spec"]["containers"]
    account = str(server.kubeconfig("release"))
    words = [account if word == "in-cluster" else word for word in container["args"]]
    done = await asyncio.to_thread(
        subprocess.run,
        [*JOULIE, *words],
        env={"POD_NAMESPACE": NAMESPACE, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for tree in trees:
        path = server.place(tree["kind"], NAMESPACE)
        # As helm does. By default the server would keep the Job, for its pods to be released.
        await server.api.delete(f"{path}/{tree['metadata']['name']}?propagationPolicy=Background")
    return done.stdout


def is_before_delete(tree: dict[str, Any]) -> bool:
    return bool(tree["metadata"].get("annotations", {}).get("helm.sh/hook") == "pre-delete")


def only_the_log_and_its_key_are_left(server: Running) -> Condition:
    """The key stays with the volumes of the log, and definitions with the objects of others."""
    names = ("gpus.gpu.mle.com", "nodehardwares.joulie.io", "nodetwins.joulie.io")
    kept = [
        *(f"CustomResourceDefinition/{name}" for name in names),
        "PersistentVolumeClaim/joulie-archive",
        "PersistentVolumeClaim/joulie-ledger",
        "PersistentVolumeClaim/joulie-projector-keys",
        "Secret/joulie-head-key",
    ]

    async def condition() -> bool:
        return await left(server) == kept

    return condition


async def test_an_uninstall_leaves_no_label_twin_status_lease_or_object(
    server: Running, home: Path, tmp_path: Path
) -> None:
    """A card keeps the status that another writer gave to it."""
    await installed(server, home)
    kind = {"apiVersion": f"{GPU_GROUP}/{VERSION}", "kind": "GPU"}
    await server.put(NODES, *[schedulable(f"n{number}") for number in range(4)])
    await server.put(GPUS, kind | card("GPU-1", "n0"))
    async with joulie("up", server.kubeconfig("admin"), tmp_path / "data", TIMEOUT_S):
        await wait_until(profiles_are(server, performance=2, eco=2))

    said = await run_hook(server, home)
    await on_the_server(server, home, "uninstall", "joulie", "-n", NAMESPACE, "--no-hooks")

    assert said.startswith("Removed the labels of 4 nodes, 4 NodeTwins")
    for tree in (await server.all(NODES)).values():
        assert "joulie.io/power-profile" not in tree["metadata"]["labels"]
        entries = tree["metadata"]["managedFields"]
        assert (MANAGER, "Apply") not in {(each["manager"], each["operation"]) for each in entries}
    await wait_until(only_the_log_and_its_key_are_left(server))


async def test_an_uninstall_gives_waiting_pods_back_to_the_scheduler_of_the_cluster(
    server: Running, home: Path
) -> None:
    """A ReplicaSet creates its pods again, after the policy is gone. Placed pods stay."""
    await installed(server, home)
    path = PLACES["Pod"].format(namespace="default")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}
    owned = {"ownerReferences": [owner | {"controller": True}]}
    waiting = {"schedulerName": "joulie", "containers": [{"name": "c", "image": "i"}]}
    for name, metadata, spec in (
        ("replaced", owned, waiting),
        ("alone", {}, waiting),
        ("placed", owned, waiting | {"nodeName": "n0"}),
        ("other", owned, waiting | {"schedulerName": "other"}),
    ):
        await server.put(path, {"metadata": metadata | {"name": name}, "spec": spec})

    said = await run_hook(server, home)

    assert set(await server.all(path)) == {"alone", "placed", "other"}
    assert "Deleted 1 pods" in said
    assert "default/alone waits for joulie" in said
    assert await server.all(server.place("MutatingAdmissionPolicyBinding")) == {}


async def test_a_release_changes_nothing_while_an_operator_works(
    server: Running, home: Path, tmp_path: Path
) -> None:
    await installed(server, home)
    await server.put(NODES, schedulable("n0"), schedulable("n1"))
    admin = str(server.kubeconfig("admin"))
    async with joulie("up", server.kubeconfig("admin"), tmp_path / "data", TIMEOUT_S):
        await wait_until(profiles_are(server, performance=1, eco=1))
        done = await asyncio.to_thread(
            subprocess.run,
            [*JOULIE, "release", "--wait", "2s", "--kubeconfig", admin],
            env={"POD_NAMESPACE": NAMESPACE, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert "Stop the operator first" in done.stderr
        assert len(await server.all(NODETWINS)) == 2
