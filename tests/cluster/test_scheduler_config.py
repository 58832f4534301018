"""A real kube-scheduler starts with what `joulie scheduler-config` prints."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from joulie_bus.runtime.ports import free_port
from joulie_extender.protocol.scheduler_config import CONFIGURATIONS
from kube_conditions import wait_until
from kube_real import PLACES, SCHEDULER, Running, program_or_skip
from kube_scheduled import scheduling

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("server", ["real"], indirect=True),
]
CLUSTER_IP = "10.0.0.76"
PRINTED = [
    [*mode, "--configuration", rules]
    for mode in (["--mode", "own"], ["--mode", "patch", "--percentage", "50"])
    for rules in CONFIGURATIONS
]


@pytest.fixture(autouse=True)
def needs_a_scheduler() -> None:
    program_or_skip(SCHEDULER)


async def printed(*words: str, code: int = 0, **environ: str) -> str:
    command = [sys.executable, "-m", "joulie_cli.main", "scheduler-config", *words]
    told = {"PATH": "/usr/bin:/bin", **environ}
    done = await asyncio.to_thread(
        subprocess.run, command, env=told, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout or done.stderr


async def starts(server: Running, configuration: dict[str, Any], name: str) -> bool:
    """Whether a scheduler accepts the configuration: it opens its port, and ends otherwise."""
    port = free_port()
    async with scheduling(server, configuration, port, name) as process:

        async def serves() -> bool:
            assert process.returncode is None, (server.directory / "kube-scheduler.log").read_text()
            return await answers(port)

        await wait_until(serves)
        return process.returncode is None


async def answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def test_kube_scheduler_starts_with_the_printed_configuration(server: Running) -> None:
    for number, words in enumerate(PRINTED):
        assert await starts(server, yaml.safe_load(await printed(*words)), f"scheduler-{number}")


async def test_the_address_is_that_of_the_service_in_the_cluster(
    server: Running, tmp_path: Path
) -> None:
    admin = ["--kubeconfig", str(server.kubeconfig("admin")), "--namespace", "joulie-system"]
    assert "no Service joulie-extender" in await printed(*admin, code=2)
    spec = {"clusterIP": CLUSTER_IP, "ports": [{"port": 9876}]}
    path = PLACES["Service"].format(namespace="joulie-system")
    await server.put(path, {"metadata": {"name": "joulie-extender"}, "spec": spec})

    [block] = yaml.safe_load(await printed(*admin, "--certificates", str(tmp_path)))["extenders"]

    assert block["urlPrefix"] == f"https://{CLUSTER_IP}:9876"
    assert block["tlsConfig"]["certFile"] == str(tmp_path / "scheduler.crt")
    [block] = yaml.safe_load(await printed(*admin, "--mode", "own"))["extenders"]
    assert block["urlPrefix"] == "https://joulie-extender.joulie-system.svc:9876"
