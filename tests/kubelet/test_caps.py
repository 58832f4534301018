"""Limits of a node of the chart, with a kubelet: ours, or what they were before (`make cluster`).

The writer of caps sets the limits in a tree of files that has the shape of /sys: the machine of the
drill need not have any, and keeps its own. Agents prove their node by the token of their pod.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

import host_trees
from node_cluster import Cluster, running_cluster
from node_drill import NAMESPACE, line_of, ready, run, say, told_by_joulie, until
from node_objects import volumes
from node_programs import NODE

pytestmark = [pytest.mark.anyio, pytest.mark.drill, pytest.mark.timeout(3600)]
INSTALL: str = (
    f"helm install joulie deploy/chart --namespace {NAMESPACE} --create-namespace "
    "--set agent.caps=true --set callout.enabled=true --set callout.replicas=1 "
    "--set console.resources.requests.cpu=10m --set ledger.enabled=false "
    "--set archive.enabled=false --set settings.POLICY_TYPE=static_partition "
    "--set-string settings.STATIC_HP_FRAC=0"
)
ZONES = [f"intel-rapl:{socket}" for socket in (0, 1)]
CONSENT = "joulie.io/caps"
WITHOUT_CONSENT_S = 30
FIRST_ORDERS_S = 15


class Limits:
    """The limits of the tree, and all values that they ever had."""

    def __init__(self, root: Path) -> None:
        folder = root / "sys/class/powercap"
        self._files = [folder / zone / "constraint_0_power_limit_uw" for zone in ZONES]
        self.before = self.now()
        self.seen = {self.before}

    def now(self) -> str:
        """One value if all limits are the same."""
        found = (file.read_text().strip() for file in self._files)
        return "+".join(sorted({value for value in found if value}))  # empty while it is written

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncGenerator[None, None]:
        async def watch() -> None:
            while True:
                for file in self._files:
                    self.seen |= {value} if (value := file.read_text().strip()) else set()
                await asyncio.sleep(0.01)

        task = asyncio.create_task(watch())
        try:
            yield
        finally:
            task.cancel()

    async def until_before(self, what: str, patience_s: float = 240) -> None:
        async def are() -> bool:
            return self.now() == self.before

        await until(are, what, patience_s)

    async def until_ours(self, what: str) -> str:
        async def are() -> bool:
            return self.now().isdigit() and self.now() != self.before

        await until(are, what)
        return self.now()


async def installed(cluster: Cluster, host: Path) -> None:
    await volumes(cluster)
    await run(cluster, INSTALL.split())
    for name in ("joulie-agent", "joulie-agent-caps"):
        paths = [{"name": "sys", "hostPath": {"path": str(host / "sys"), "type": "Directory"}}]
        if name.endswith("caps"):
            limits = {"path": str(host / "limits"), "type": "DirectoryOrCreate"}
            paths.append({"name": "limits", "hostPath": limits})
        change = {"spec": {"template": {"spec": {"volumes": paths}}}}
        await cluster.told("patch", "-n", NAMESPACE, f"ds/{name}", "-p", json.dumps(change))
    await run(cluster, ["kubectl", "label", "node", NODE, "joulie.io/managed=true"])
    await ready(cluster, least=8)


async def twin_says(cluster: Cluster, what: str, is_so: Callable[[str], bool]) -> str:
    found = [""]

    async def does() -> bool:
        with contextlib.suppress(AssertionError):  # the console may just have lost its broker
            found[0] = await told_by_joulie(cluster, "twin", NODE)
        return is_so(found[0])

    await until(does, what)
    return found[0]


def may_draw_w(twin: str) -> int:
    found = re.search(r"may draw +(\d+) W", twin)
    return int(found[1]) if found else 0


def writers() -> list[int]:
    """Only ours are in this place."""
    return [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if "joulie agent --caps" in line_of(process)
    ]


async def killed_and_back() -> None:
    (writer,) = writers()
    os.kill(writer, signal.SIGKILL)

    async def is_another() -> bool:
        return bool(set(writers()) - {writer})

    await until(is_another, "another process of the writer runs")
    await asyncio.sleep(FIRST_ORDERS_S)


async def scaled(cluster: Cluster, replicas: int) -> None:
    await cluster.told("scale", "-n", NAMESPACE, "sts/joulie-nats", f"--replicas={replicas}")


async def untouched_without_consent(cluster: Cluster, limits: Limits) -> int:
    """What the node may draw then."""
    twin = await twin_says(
        cluster, "the writer says what it can set", lambda text: "can cap    CPU" in text
    )
    say(twin)
    await asyncio.sleep(WITHOUT_CONSENT_S)
    assert limits.seen == {limits.before}
    return may_draw_w(await told_by_joulie(cluster, "twin", NODE))


async def capped(cluster: Cluster, limits: Limits) -> str:
    """The plan's cap, ordered, set, read back, told, and seen in the twin."""
    could_w = await untouched_without_consent(cluster, limits)
    await run(cluster, ["kubectl", "label", "node", NODE, f"{CONSENT}=enforce"])
    ours = await limits.until_ours("the cap of the plan is set")
    say(f"the limit was {limits.before} uW and is {ours} uW")
    say(await twin_says(cluster, "it is seen", lambda text: 0 < may_draw_w(text) < could_w))
    return ours


async def survives(cluster: Cluster, limits: Limits, ours: str) -> None:
    await killed_and_back()
    assert limits.now() == ours

    await scaled(cluster, 0)
    await limits.until_before("the broker is gone, and the limits are given back")
    await scaled(cluster, 1)
    assert await limits.until_ours("the broker is back, and so is the cap") == ours

    pods = ["-n", NAMESPACE, "-l", "app.kubernetes.io/component=agent-caps"]
    await cluster.told("delete", "pod", *pods)
    assert await limits.until_ours("another pod of the writer sets the cap") == ours


async def test_limits_are_ours_or_what_they_were_before(place: Path) -> None:
    host = host_trees.xeon(place / "host")
    limits = Limits(host)
    async with running_cluster(place) as cluster, limits.watched():
        await installed(cluster, host)
        ours = await capped(cluster, limits)
        await survives(cluster, limits, ours)
        await run(cluster, ["kubectl", "label", "node", NODE, f"{CONSENT}-"])
        await limits.until_before("without consent the limits are given back")
        await run(cluster, ["helm", "uninstall", "joulie", "--namespace", NAMESPACE, "--wait"])
        say(f"all values that the limits ever had: {sorted(limits.seen)}")
        assert limits.seen == {limits.before, ours}
        assert limits.now() == limits.before
