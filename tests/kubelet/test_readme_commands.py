"""The README's "Run it on a cluster", word for word, on two nodes: `make cluster-two`."""

import asyncio
import contextlib
import os
import re
import subprocess
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.async_api import expect

from browser import new_context, running_chromium
from node_cluster import Cluster, Tree, running_cluster
from node_drill import NAMESPACE, is_running, pods, say, until
from node_objects import everything, settled, volumes
from readme_commands import DELETIONS, END, EXPLAIN, INSIDE, TOMORROW

pytestmark = [pytest.mark.anyio, pytest.mark.drill, pytest.mark.timeout(3600)]
TRIAL = "energy-trial"
PODS = 20
TOKEN = re.compile(r"^ +(kubectl .* get secret .*)$", re.MULTILINE)
FORWARD = re.compile(r"^ +(kubectl .* port-forward .*)$", re.MULTILINE)
ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+/)")


class Ran(NamedTuple):
    command: str
    text: str
    seconds: float
    cpu_s: float  # of its process and those that it started, not of the cluster


class Shell:
    """Runs commands of the pages as they stand there, and keeps what each one took."""

    def __init__(self, cluster: Cluster) -> None:
        self.environment = cluster.environment
        self.ran: list[Ran] = []

    async def run(self, command: str) -> str:
        self.ran.append(await asyncio.to_thread(self._run, command))
        say(f"$ {command}\n{self.ran[-1].text}")
        return self.ran[-1].text

    def _run(self, command: str) -> Ran:
        began_s = time.monotonic()
        with subprocess.Popen(
            ["bash", "-c", command],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            text = process.stdout.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"{command}: {text}"
        return Ran(command, text, time.monotonic() - began_s, used.ru_utime + used.ru_stime)

    def table(self) -> str:
        """What each command took; of the same one for several pods, the mean."""
        groups: dict[str, list[Ran]] = {}
        for each in self.ran:
            groups.setdefault(re.sub(r"\bpod-\d+\b", "first", each.command), []).append(each)
        return "\n".join(
            f"| `{command}` | {len(rans)} | {sum(each.seconds for each in rans) / len(rans):.1f} "
            f"| {sum(each.cpu_s for each in rans) / len(rans):.1f} |"
            for command, rans in groups.items()
        )


def about(pod: str, command: str) -> str:
    """A command of the README about its pod, about another one."""
    return command.replace(" first", f" {pod}", 1)


async def restarted(cluster: Cluster) -> list[str]:
    found = [*await pods(cluster, NAMESPACE), *await pods(cluster, TRIAL)]
    return [
        f"{pod['metadata']['name']}/{status['name']}"
        for pod in found
        for status in pod["status"].get("containerStatuses", [])
        if status["restartCount"]
    ]


async def installed(shell: Shell, cluster: Cluster) -> None:
    for command in INSIDE:
        await shell.run(command)
    names = [f"pod-{number}" for number in range(PODS)]
    for name in names:
        await shell.run(about(name, INSIDE[-1]))

    async def all_run() -> bool:
        found = await pods(cluster, TRIAL)
        return len(found) == 1 + PODS and all(map(is_running, found))

    await until(all_run, "the pods of the trial run")
    for pod in await pods(cluster, TRIAL):
        await explained(shell, pod)


async def explained(shell: Shell, pod: Tree) -> None:
    """By the command of the README: its decision, with scores, and the node where it is."""
    text = await shell.run(about(pod["metadata"]["name"], EXPLAIN[0]))
    assert pod["spec"]["schedulerName"] == "joulie"
    assert f"bound to {pod['spec']['nodeName']}" in text
    assert "scores" in text


async def looked_at(shell: Shell) -> None:
    """What the README does on the next day; the page opens as `helm status` describes."""
    texts = [await shell.run(command) for command in TOMORROW]
    [address], [forward], [token] = (
        set(each.findall(texts[-1])) for each in (ADDRESS, FORWARD, TOKEN)
    )
    secret = await shell.run(token)
    async with (
        forwarded(shell, forward),
        running_chromium() as chromium,
        new_context(chromium) as context,
    ):
        page = await context.new_page()
        await page.goto(address)
        await page.get_by_label("Token", exact=True).fill(secret)
        await page.keyboard.press("Enter")
        await expect(page.locator("#token-dialog")).to_be_hidden()
        await expect(page.locator("body")).to_contain_text(f"{TRIAL}/")


@contextlib.asynccontextmanager
async def forwarded(shell: Shell, command: str) -> AsyncGenerator[None, None]:
    process = await asyncio.create_subprocess_exec(
        *command.split(), env=shell.environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert b"Forwarding from" in await process.stdout.readline()
        yield
    finally:
        process.terminate()
        await process.wait()


async def removed(shell: Shell, cluster: Cluster, before: set[str]) -> None:
    for command in (*END, *DELETIONS):
        await shell.run(command)

    async def is_as_before() -> bool:
        return await everything(cluster) <= before

    with contextlib.suppress(TimeoutError):  # the assertion below names what there is
        await until(is_as_before, "nothing is left")
    assert await everything(cluster) - before == set()


async def test_the_readme_on_two_nodes_explains_every_pod_and_leaves_nothing(place: Path) -> None:
    async with running_cluster(place, nodes=2) as cluster:
        await volumes(cluster)
        before, shell = await settled(cluster), Shell(cluster)
        await installed(shell, cluster)
        await looked_at(shell)
        say(await cluster.told("get", "pods", "--all-namespaces", "-o", "wide"))
        assert await restarted(cluster) == []
        await removed(shell, cluster, before)
        say(f"| Command | Times | Seconds | CPU |\n|---|---|---|---|\n{shell.table()}")
