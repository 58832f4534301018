"""The agents of the chart: what they may do on a node, and that they read it with their mounts."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helm_chart import CHART, of_kind, pod_specs, rendered
from joulie_bus.streams.roles import Role

pytestmark = pytest.mark.slow
READER, WRITER = "DaemonSet/joulie-agent", "DaemonSet/joulie-agent-caps"
CAPS = ["--set", "agent.caps=true"]
Tree = dict[str, Any]


def mounts_of(spec: Tree) -> dict[str, tuple[Tree, bool]]:
    """The host's paths in the first container: the volume, and whether it can be written to."""
    volumes = {each["name"]: each["hostPath"] for each in spec["volumes"] if "hostPath" in each}
    return {
        each["mountPath"]: (volumes[each["name"]], not each.get("readOnly", False))
        for each in spec["containers"][0]["volumeMounts"]
        if each["name"] in volumes
    }


def test_the_reader_is_root_without_a_capability_and_writes_to_no_file_of_the_host(
    home: Path,
) -> None:
    spec = pod_specs(rendered(home))[READER]
    [container] = spec["containers"]

    assert spec["securityContext"]["runAsUser"] == 0
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostPID", "hostIPC", "hostNetwork"} & set(spec)
    assert spec["automountServiceAccountToken"] is False
    assert {path: writable for path, (_, writable) in mounts_of(spec).items()} == dict.fromkeys(
        (
            "/host/sys",
            "/host/proc/cpuinfo",
            "/host/proc/meminfo",
            "/host/proc/stat",
            "/host/var/log/pods",
            "/host/var/lib/kubelet/pod-resources",
        ),
        False,
    )


def test_an_agent_runs_on_each_node_as_its_role_and_without_the_database(home: Path) -> None:
    trees = rendered(home, "-f", str(CHART / "values-ha.yaml"), *CAPS)
    for name in (READER, WRITER):
        spec = pod_specs(trees)[name]
        env = {each["name"]: each for each in spec["containers"][0]["env"]}

        assert spec["tolerations"] == [{"operator": "Exists"}]
        assert env["NATS_USER"]["value"] == Role.AGENT
        assert env["NODE_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
        assert not [each for each in env if each.startswith("DATABASE")]
        assert "database-url" not in json.dumps(spec)


def test_a_container_is_privileged_only_where_caps_are_asked_for(home: Path) -> None:
    def privileged(*options: str) -> set[str]:
        return {
            name
            for name, spec in pod_specs(rendered(home, *options)).items()
            if "privileged" in json.dumps(spec)
        }

    assert privileged() == set()
    assert privileged(*CAPS) == {WRITER}
    without = rendered(home, "--set", "agent.enabled=false")
    assert not of_kind(without, "DaemonSet")
    assert "joulie-agent" not in of_kind(without, "ServiceAccount")


def test_the_writer_keeps_what_the_limits_were_on_its_node(home: Path) -> None:
    spec = pod_specs(rendered(home, *CAPS))[WRITER]
    mounts = mounts_of(spec)
    args = spec["containers"][0]["args"]

    assert {path for path, (_, writable) in mounts.items() if writable} == {
        "/host/sys",
        "/var/lib/joulie",
    }
    assert "/host/var/lib/kubelet/pod-resources" in mounts
    assert mounts["/var/lib/joulie"][0]["path"] == "/var/lib/joulie"
    assert Path(args[args.index("--limits") + 1]).parent == Path("/var/lib/joulie")
    assert "--dry-run" not in args
    dry = pod_specs(rendered(home, *CAPS, "--set", "agent.capsDryRun=true"))[WRITER]
    assert "--dry-run" in dry["containers"][0]["args"]


@pytest.mark.anyio
async def test_limits_are_given_back_when_the_pod_of_the_writer_ends(
    home: Path, tmp_path: Path
) -> None:
    """The container that gives them back is the last one to end: a sidecar of Kubernetes 1.29."""
    spec = pod_specs(rendered(home, *CAPS))[WRITER]
    [release] = spec["initContainers"]
    args = spec["containers"][0]["args"]
    joulie = tmp_path / "joulie"
    joulie.write_text(f'#!/bin/sh\necho "$@" >{tmp_path / "called"}\n')
    joulie.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    process = await asyncio.create_subprocess_exec(*release["command"], env=path)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    async with asyncio.timeout(60):
        while not children.read_text():
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGTERM)

        assert await process.wait() == 0
    called = (tmp_path / "called").read_text().split()

    assert release["restartPolicy"] == "Always"
    assert called[:2] == ["caps", "release"]
    assert called[called.index("--limits") + 1] == args[args.index("--limits") + 1]
    assert release["volumeMounts"] == spec["containers"][0]["volumeMounts"]


def test_the_reader_reads_this_machine_with_the_mounts_of_the_chart(
    home: Path, tmp_path: Path
) -> None:
    """What is not mounted cannot be read."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("requires the right to mount")
    spec = pod_specs(rendered(home))[READER]
    mounts = [
        f"mount --bind {volume['path']} {mount_point(tmp_path, path, Path(volume['path']))}"
        for path, (volume, _) in mounts_of(spec).items()
        if Path(volume["path"]).exists()
    ]
    args = [str(tmp_path / "host") if each == "/host" else each for each in container_args(spec)]
    command = [sys.executable, "-m", "joulie_cli.main", *args, "--once", "-o", "json"]
    within = "\n".join(["set -e", *mounts, f"exec {shlex.join(command)}"])
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", within], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)

    assert report["hardware"]["cpu"]["cores"] > 0
    assert report["hardware"]["memory_bytes"] > 0


def mount_point(root: Path, path: str, of: Path) -> Path:
    place = root / path.removeprefix("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    if of.is_dir():
        place.mkdir(exist_ok=True)
    else:
        place.touch()
    return place


def container_args(spec: Tree) -> list[str]:
    [container] = spec["containers"]
    return list(container["args"])


def test_a_runtime_of_nvidia_gives_its_cards_to_the_agents(home: Path) -> None:
    spec = pod_specs(rendered(home, "--set", "agent.runtimeClassName=nvidia"))[READER]
    env = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}

    assert spec["runtimeClassName"] == "nvidia"
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["NVIDIA_DRIVER_CAPABILITIES"]) == ("all", "utility")
