"""The commands of the README for a cluster, word for word, against a real kube-apiserver."""

import asyncio
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

import joulie_forked
from joulie_bus.runtime.ports import free_port
from joulie_operator.resources.custom_resources import GROUP, NODEHARDWARES, VERSION
from joulie_process import joulie
from joulie_projections.component.data_directory import DataDirectory
from kube_builders import node, schedulable
from kube_conditions import NODES, TIMEOUT_S, profiles_are, wait_until
from kube_real import HELM, KUBECTL, PLACES, ROOT, SCHEDULER, Running, program_or_skip
from kube_scheduled import deployed_block, scheduling
from readme_commands import AT_ONCE, DELETIONS, END, EXPLAIN, INSIDE, OUTSIDE, SECTION, TOMORROW

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
HARDWARE = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "NodeHardware"}
PODS = "/api/v1/namespaces/energy-trial/pods"
UNINSTALL = f"{END[0]} --no-hooks"  # no kubelet runs the Job that cleans up before


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with helm and kubectl, for PATH."""
    place = tmp_path / "bin"
    place.mkdir()
    for name, variable in (("helm", HELM), ("kubectl", KUBECTL)):
        (place / name).symlink_to(program_or_skip(variable))
    return place


async def run(command: str, environ: Mapping[str, str]) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-c", command],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"


def environment(server: Running, programs: Path, home: Path) -> dict[str, str]:
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "KUBECONFIG": str(server.kubeconfig("admin")),
        "HOME": str(home),
    }


def test_the_readme_installs_and_tries_it_on_one_screen() -> None:
    assert [command.split()[1] for command in INSIDE] == [
        *("install", "label", "create", "label", "run")
    ]
    assert [len(OUTSIDE), len(EXPLAIN), len(TOMORROW), len(END)] == [1, 1, 3, 2]
    assert len(SECTION.split("To run all components on this machine")[0].splitlines()) < 40


async def test_the_commands_that_install_the_chart_work_on_a_fresh_cluster(
    server: Running, programs: Path, home: Path
) -> None:
    await server.put(NODES, *[node(f"n{number}", managed=False) for number in range(3)])
    for command in AT_ONCE:
        await run(command, environment(server, programs, home))

    labels = [tree["metadata"]["labels"] for tree in (await server.all(NODES)).values()]
    assert {each.get("joulie.io/managed") for each in labels} == {"true"}
    made = {
        name
        for kind in ("Deployment", "StatefulSet", "DaemonSet")
        for name in await server.all(PLACES[kind].format(namespace="joulie-system"))
    }
    assert {"joulie-operator", "joulie-extender", "joulie-console", "joulie-agent"} <= made
    assert "joulie-archive" in made
    namespace = (await server.all(PLACES["Namespace"]))["energy-trial"]
    assert namespace["metadata"]["labels"]["joulie.io/schedule"] == "true"
    assert "first" in await server.all(PODS)
    await run(UNINSTALL, environment(server, programs, home))
    assert "nodetwins.joulie.io" in await server.all(PLACES["CustomResourceDefinition"])
    left = await server.all(PLACES["Deployment"].format(namespace="joulie-system"))
    assert not left


@pytest.mark.long
async def test_every_pod_of_the_trial_is_placed_and_explained_and_nothing_is_restarted(
    server: Running, programs: Path, home: Path, tmp_path: Path
) -> None:
    """No kubelet runs the chart's pods: the components and the kube-scheduler run beside it."""
    program_or_skip(SCHEDULER)
    environ, data = environment(server, programs, home), DataDirectory(tmp_path / "data")
    await server.put(NODES, *[schedulable(f"n{number}") for number in range(2)])
    *before, run_pod = AT_ONCE
    for command in before:
        await run(command, environ)
    extender, admin = f"127.0.0.1:{free_port()}", server.kubeconfig("admin")
    block = deployed_block("kube-scheduler.yaml", extender)
    block["profiles"][0]["schedulerName"] = "joulie"
    async with (
        joulie("up", admin, data.path, TIMEOUT_S, EXTENDER_ADDR=extender),
        scheduling(server, block),
    ):
        await wait_until(profiles_are(server, performance=1, eco=1))
        names = ["first", *(f"pod-{number}" for number in range(7))]
        for name in names:
            await run(run_pod.replace(" first ", f" {name} "), environ)

        async def are_placed() -> bool:
            pods = await server.all(PODS)
            assert {each["spec"]["schedulerName"] for each in pods.values()} == {"joulie"}
            return all(each["spec"].get("nodeName") for each in pods.values())

        await wait_until(are_placed)
        nodes = {name: each["spec"]["nodeName"] for name, each in (await server.all(PODS)).items()}
        await wait_until(lambda: explained(data.path, nodes))
        ran = data.running()
        assert ran is not None
        assert {*ran.restarts.values()} == {0}


async def explained(data: Path, nodes: Mapping[str, str]) -> bool:
    """Whether each pod has an explanation with its node; the log is written behind the binding."""
    for name, where in nodes.items():
        words = ("explain", f"energy-trial/{name}", "--data", data)
        done = await asyncio.to_thread(joulie_forked.joulie, *words)
        if f"bound to {where}" not in done.stdout or "scores" not in done.stdout:
            return False
    return True


async def test_the_steps_of_the_uninstall_leave_neither_definition_nor_object(
    server: Running, programs: Path, home: Path
) -> None:
    """Volumes and namespaces need controllers to go, which do not run here."""
    environ = environment(server, programs, home)
    for command in AT_ONCE[:1]:
        await run(command, environ)
    hardware = {"metadata": {"name": "n0"}, "spec": {"nodeName": "n0"}}
    await server.put(NODEHARDWARES, HARDWARE | hardware)
    await run(UNINSTALL, environ)
    definitions = PLACES["CustomResourceDefinition"]
    assert "n0" in await server.all(NODEHARDWARES)
    assert len(DELETIONS) == 5

    for command in DELETIONS:
        words, _, _ = command.partition("#")
        takes_controllers = " pvc " in words or " namespace " in words
        await run(f"{words} --wait=false" if takes_controllers else words, environ)

    left = await server.all(definitions)
    assert [name for name in left if name.endswith((".joulie.io", "gpu.mle.com"))] == []
    secrets = await server.all(PLACES["Secret"].format(namespace="joulie-system"))
    assert "joulie-head-key" not in secrets
    claims = await server.all(PLACES["PersistentVolumeClaim"].format(namespace="joulie-system"))
    assert [
        name for name, each in claims.items() if "deletionTimestamp" not in each["metadata"]
    ] == []


async def test_the_manifests_for_parts_outside_of_the_cluster_apply_to_a_fresh_one(
    server: Running, programs: Path, home: Path
) -> None:
    for command in OUTSIDE:
        await run(command, environment(server, programs, home))

    assert "nodetwins.joulie.io" in await server.all(PLACES["CustomResourceDefinition"])
    assert "joulie-operator" in await server.all(PLACES["ClusterRole"])
