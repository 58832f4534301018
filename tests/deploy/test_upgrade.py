"""The chart of an older version and this one at a real API server: upgrade, rollback, uninstall.

No kubelet runs, so the hooks are left out; `make cluster` runs them.
"""

from asyncio import to_thread
from pathlib import Path
from typing import Any

import pytest

import older_version
from helm_chart import CHART, NAMESPACE, helm
from kube_real import PLACES, Running

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
AT = ["joulie", "-n", NAMESPACE, "--no-hooks"]
# What the log, its readers and the broker must find again.
KEPT = {"joulie-nats-users", "joulie-nats-tls", "joulie-head-key", "joulie-console-token"}


@pytest.fixture(scope="module")
def older_chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        place = older_version.extracted(tmp_path_factory.mktemp("older"))
    except older_version.OlderVersionMissing as missing:
        pytest.skip(f"requires the history of the repository: {missing}")
    return place / older_version.CHART


async def told(server: Running, home: Path, *words: str) -> None:
    code, said = await to_thread(helm, words, home, server.kubeconfig("admin"))
    assert code == 0, said


async def secrets(server: Running) -> dict[str, Any]:
    found = await server.all(PLACES["Secret"].format(namespace=NAMESPACE))
    return {name: tree["data"] for name, tree in found.items() if name in KEPT}


async def volumes(server: Running) -> dict[str, Any]:
    """Of each StatefulSet, which the API server does not let change."""
    found = await server.all(PLACES["StatefulSet"].format(namespace=NAMESPACE))
    return {
        name: [each["spec"] for each in tree["spec"]["volumeClaimTemplates"]]
        for name, tree in found.items()
    }


async def images(server: Running) -> set[str]:
    found = await server.all(PLACES["Deployment"].format(namespace=NAMESPACE))
    pods = [tree["spec"]["template"]["spec"] for tree in found.values()]
    return {
        each["image"] for pod in pods for each in pod["containers"] if "joulie" in each["image"]
    }


async def test_an_older_chart_is_upgraded_and_rolled_back(
    server: Running, home: Path, older_chart: Path
) -> None:
    """Passwords, keys and volumes stay the same."""
    await told(server, home, "install", *AT, "--create-namespace", str(older_chart))
    before, [older] = (await secrets(server), await volumes(server)), await images(server)
    assert set(before[0]) >= {"joulie-nats-users", "joulie-nats-tls", "joulie-head-key"}

    await told(server, home, "upgrade", *AT, str(CHART), "--reset-then-reuse-values")
    [newer] = await images(server)
    assert newer != older
    assert await secrets(server) == before[0]
    assert before[1].items() <= (await volumes(server)).items()

    await told(server, home, "rollback", *AT, "1")
    assert await images(server) == {older}
    assert (await secrets(server), await volumes(server)) == before
    await told(server, home, "uninstall", *AT)
