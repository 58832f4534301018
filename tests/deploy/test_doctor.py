"""`joulie doctor` on a cluster with the chart, whose pods no kubelet runs."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from authority import Authority
from helm_chart import CHART, NAMESPACE, helm, rendered
from joulie_operator.apply.writer import TWIN
from joulie_operator.resources.crds import DEFINITIONS
from joulie_operator.resources.custom_resources import NODETWINS
from kube_real import PLACES, Running, Tree

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
MERGE = "application/merge-patch+json"
PODS = PLACES["Pod"].format(namespace=NAMESPACE)
FORBIDDEN = 403
READY = {"type": "Ready", "status": "True"}


async def examined(
    server: Running, where: Path, *words: str, user: str = "admin"
) -> dict[str, dict[str, Any]]:
    """The findings by check, from a machine that has nothing but a kubeconfig."""
    config = ["--kubeconfig", str(server.kubeconfig(user))]
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "joulie_cli.main", "doctor", "-o", "json", *config, *words],
        cwd=where,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    tree = json.loads(done.stdout or f"{{}} {done.stderr}")
    assert done.returncode == tree["exit_code"]
    return {each["check"]: each for each in tree["findings"]}


async def installed(server: Running, home: Path) -> None:
    words = ["install", "joulie", str(CHART), "-n", NAMESPACE, "--create-namespace"]
    code, said = await asyncio.to_thread(helm, words, home, server.kubeconfig("admin"))
    assert code == 0, said


async def start(server: Running, deployment: str, number: int, *conditions: Tree) -> None:
    """A pod of a Deployment or StatefulSet, as its controller and a kubelet would leave it."""
    found: Tree = {}
    for kind in ("Deployment", "StatefulSet"):
        found |= await server.all(PLACES[kind].format(namespace=NAMESPACE))
    template, name = found[deployment]["spec"]["template"], f"{deployment}-{number}"
    claims = [
        {"name": each["metadata"]["name"], "persistentVolumeClaim": {"claimName": name}}
        for each in found[deployment]["spec"].get("volumeClaimTemplates", [])
    ]
    spec = template["spec"] | {"volumes": template["spec"].get("volumes", []) + claims}
    tree = {"metadata": {**template["metadata"], "name": name}, "spec": spec}
    await server.put(PODS, tree)
    status = {"status": {"phase": "Running", "conditions": list(conditions)}}
    await server.api._send("PATCH", f"{PODS}/{name}/status", {}, status, MERGE)


async def test_the_doctor_examines_the_pods_rights_and_admission_of_the_chart(
    server: Running, home: Path, tmp_path: Path
) -> None:
    await installed(server, home)
    await start(server, "joulie-operator", 0, READY)
    await start(server, "joulie-operator", 1)
    for part in ("extender", "scheduler"):
        await start(server, f"joulie-{part}", 0, READY)
    before = await examined(server, tmp_path)
    labels = {"joulie.io/schedule": "true"}
    await server.put(PLACES["Namespace"], {"metadata": {"name": "team", "labels": labels}})
    with_label = await examined(server, tmp_path)
    await server.api.delete(f"{server.place('MutatingAdmissionPolicyBinding')}/joulie-scheduler")
    without_binding = await examined(server, tmp_path)

    account = f"system:serviceaccount:{NAMESPACE}:joulie-operator"
    assert before["rights of the operator"]["seen"].startswith(account)
    assert before["rights of the operator"]["level"] == "ok"
    assert "rights of the extender" not in before  # kube-scheduler binds
    assert before["pods of operator"]["level"] == "warn"
    assert before["pods of operator"]["seen"].startswith("1 of 2 pods ready")
    assert {before[f"pods of {part}"]["level"] for part in ("extender", "scheduler")} == {"ok"}
    assert before["certificate Secret joulie-nats-tls"]["level"] == "ok"
    assert before["admission"]["seen"].endswith(
        "no namespace has the label joulie.io/schedule=true"
    )
    assert with_label["admission"]["level"] == "ok"
    assert without_binding["admission"]["level"] == "fail"
    assert "kube-scheduler" not in before  # the chart brings one
    # No kubelet runs the pods, so their metrics and the console cannot be read.
    assert before["calls of kube-scheduler"]["seen"].startswith("not seen: The console")
    assert before["answers of the extender"]["level"] == "warn"
    assert "broker" not in before  # nothing here names it


async def test_the_doctor_says_that_the_token_of_an_account_lacks_a_right(
    server: Running, home: Path, tmp_path: Path
) -> None:
    await installed(server, home)
    await start(server, "joulie-operator", 0, READY)
    role = f"{PLACES['ClusterRole']}/joulie-operator"
    await server.api._send("PATCH", role, {}, {"rules": []}, MERGE)

    async def seen() -> str:
        return str((await examined(server, tmp_path))["rights of the operator"]["seen"])

    async with asyncio.timeout(60):
        while "patch nodetwins.joulie.io" not in await seen():
            await asyncio.sleep(0.5)


async def beside_an_autoscaler(server: Running) -> None:
    """Ten nodes of a policy by which nodes sleep, and cluster-autoscaler with its default flags."""
    labels = {"joulie.io/power-profile": "eco"}
    for number in range(10):
        await server.put("/api/v1/nodes", {"metadata": {"name": f"s{number}", "labels": labels}})
    spec = {"nodeName": "s0", "policy": {"name": "consolidate_and_sleep"}}
    await server.put(NODETWINS, {**TWIN, "metadata": {"name": "s0"}, "spec": spec})
    app = {"app": "cluster-autoscaler"}
    container = {"name": "c", "image": "example.com/cluster-autoscaler:v1", "args": ["--v=4"]}
    template = {"metadata": {"labels": app}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": app}, "template": template}
    path = PLACES["Deployment"].format(namespace="default")
    await server.put(path, {"metadata": {"name": "scaler"}, "spec": spec})


def is_right_of_the_test(tree: Tree) -> bool:
    hook = tree["metadata"].get("annotations", {}).get("helm.sh/hook")
    return bool(hook == "test" and tree["kind"] != "Pod")


def granted(trees: list[Tree]) -> set[tuple[str, str, str]]:
    """Verb, group and resource of each rule."""
    return {
        (verb, group, resource)
        for tree in trees
        for rule in tree.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(requests: list[Tree]) -> set[tuple[str, str, str]]:
    """Those of the requests that were allowed because of the roles of the test."""
    return {
        (each["verb"], each["objectRef"].get("apiGroup", ""), each["objectRef"]["resource"])
        for each in requests
        if "objectRef" in each
        and each["responseStatus"]["code"] != FORBIDDEN
        and "joulie-test" in each["annotations"].get("authorization.k8s.io/reason", "")
    }


async def test_the_test_of_the_chart_has_the_rights_that_it_needs_and_uses_each(
    server: Running, home: Path, tmp_path: Path
) -> None:
    """Certificates come as files without keys. Metrics are read from the pods, and decisions from
    the database, so neither a proxy nor a Secret is needed; this machine reaches none of them.
    """
    await installed(server, home)
    trees = [tree for tree in rendered(home) if is_right_of_the_test(tree)]
    for tree in trees:
        await server.put(server.place(tree["kind"], NAMESPACE), tree)
    await start(server, "joulie-operator", 0, READY)
    await beside_an_autoscaler(server)
    Authority.made(tmp_path, "authority").issue(tmp_path, "nats-tls")
    found = await examined(server, tmp_path, "--certificates", str(tmp_path), user="test")

    unseen = {name for name, each in found.items() if each["seen"].startswith("not seen")}
    assert unseen <= {"calls of kube-scheduler", "kube-scheduler"}  # no database, no scheduler
    assert found["rights of the operator"]["level"] == "ok"
    assert found["devices of DRA"]["seen"].startswith("resource.k8s.io/v1")
    assert found["certificate nats-tls"]["level"] == "ok"
    assert {found[f"CRD {each.name}"]["level"] for each in DEFINITIONS} == {"ok"}
    # 8 of 10 nodes may sleep, by the default of max_share.
    assert found["cluster-autoscaler stops"]["advice"].startswith("Set --ok-total-unready-count=11")
    assert "10 that may sleep lack" in found["cluster-autoscaler removes nodes"]["seen"]
    assert used(server.asked("test")) == granted(trees)
