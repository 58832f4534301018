"""The commands of the README for a cluster, word for word, against a real kube-apiserver."""

import asyncio
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from kube_builders import node
from kube_conditions import NODES
from kube_real import HELM, KUBECTL, PLACES, ROOT, Running, program_or_skip

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
README = (ROOT / "README.md").read_text()
SECTION = README.split("\n## Run it on a cluster\n")[1].split("\n## ")[0]
INSIDE = re.findall(r"^\$ ((?:helm|kubectl) .*)$", SECTION, re.MULTILINE)
OUTSIDE = re.findall(r"`(kubectl apply [^`]*)`", SECTION)
END = re.findall(r"`(helm uninstall [^`]*)`", SECTION)
PODS = "/api/v1/namespaces/energy-trial/pods"


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
    assert len(OUTSIDE) == len(END) == 1
    assert len(SECTION.split("To run all components on this machine")[0].splitlines()) < 40


async def test_the_commands_that_install_the_chart_work_on_a_fresh_cluster(
    server: Running, programs: Path, home: Path
) -> None:
    await server.put(NODES, *[node(f"n{number}", managed=False) for number in range(3)])
    for command in INSIDE:
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
    # No kubelet runs the Job that cleans up before.
    await run(f"{END[0]} --no-hooks", environment(server, programs, home))
    assert "nodetwins.joulie.io" in await server.all(PLACES["CustomResourceDefinition"])
    left = await server.all(PLACES["Deployment"].format(namespace="joulie-system"))
    assert not left


async def test_the_manifests_for_parts_outside_of_the_cluster_apply_to_a_fresh_one(
    server: Running, programs: Path, home: Path
) -> None:
    for command in OUTSIDE:
        await run(command, environment(server, programs, home))

    assert "nodetwins.joulie.io" in await server.all(PLACES["CustomResourceDefinition"])
    assert "joulie-operator" in await server.all(PLACES["ClusterRole"])
