"""A real kube-scheduler fills 100 nodes with devices of DRA, by our scores: none is left in pieces.

.venv/bin/python -m pytest -m drill -s tests/cluster/test_devices_packed.py
KUBE_BIN=.kube/bin-1.37.2 before it: with that version.
"""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.presets import HEADROOM, SAVINGS
from joulie_process import joulie
from kube_conditions import PODS, TIMEOUT_S, wait_until
from kube_devices import (
    claiming,
    put_claiming,
    put_nodes_of_eight,
)
from kube_real import SCHEDULER, Running, program_or_skip
from kube_scheduled import deployed_block, scheduling
from seen_positions import committed

pytestmark = [pytest.mark.anyio, pytest.mark.drill, pytest.mark.timeout(900)]
ONLY_REAL = pytest.mark.parametrize("server", ["real"], indirect=True)
HOSTS, PER_HOST = 100, 8
SMALL = [1] * 170 + [2] * 70  # 310 devices: 39 nodes have as many
WHOLE = [8] * 60
AT_ONCE = 10
SETTLED = 8  # looks without another pod that is placed
LOOK_S = 1.5


class Placed(NamedTuple):
    pods: int
    whole: int  # of those with eight devices
    nodes: int


@ONLY_REAL
@pytest.mark.parametrize("preset", [SAVINGS, HEADROOM])
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_all_of_300_claiming_pods_fit(
    server: Running, tmp_path: Path, seed: int, preset: str
) -> None:
    found = await placed(server, tmp_path, SMALL + WHOLE, seed, preset)

    print(f"\n{server.version}, seed {seed}, {preset}: {found}")
    assert found.pods >= 297
    assert found.whole >= 57


@ONLY_REAL
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_small_pods_share_nodes(server: Running, tmp_path: Path, seed: int) -> None:
    found = await placed(server, tmp_path, SMALL, seed)

    print(f"\n{server.version}, seed {seed}: {found}")
    assert found.pods == len(SMALL)
    assert found.nodes <= 43


async def placed(
    server: Running, tmp_path: Path, counts: Sequence[int], seed: int, preset: str = SAVINGS
) -> Placed:
    program_or_skip(SCHEDULER)
    shuffled = [*counts]
    random.Random(seed).shuffle(shuffled)
    await with_devices(server)
    data, extender = tmp_path / "data", f"127.0.0.1:{free_port()}"
    block = deployed_block("kube-scheduler.yaml", extender)
    for each in block["extenders"]:
        each["httpTimeout"] = "10s"  # a busy machine must not decide the test
    settings = {"EXTENDER_ADDR": extender, "LEASE_DURATION": "15s", "PRESET": preset}
    async with joulie("up", server.kubeconfig("operator"), data, TIMEOUT_S, **settings):
        await wait_until(lambda: knows_devices(data))
        async with scheduling(server, block):
            await create(server, shuffled)
            return await settled(server, shuffled)


async def with_devices(server: Running) -> None:
    names = [f"n{at:03d}" for at in range(HOSTS)]
    await put_nodes_of_eight(server, names, [(f"of-{count}", count) for count in (1, 2, 8)])


async def knows_devices(data: Path) -> bool:
    return len(committed(data).state.gpus) == HOSTS * PER_HOST


async def create(server: Running, counts: Sequence[int]) -> None:
    for first in range(0, len(counts), AT_ONCE):
        pods = [
            claiming(f"p{at}", f"template/of-{count}", cores=1)
            for at, count in enumerate(counts[first : first + AT_ONCE], first)
        ]
        await put_claiming(server, *pods)


async def settled(server: Running, counts: Sequence[int]) -> Placed:
    """Once no further pod is placed."""
    there, before, looks = list[dict[str, Any]](), -1, 0
    while looks < SETTLED:
        await asyncio.sleep(LOOK_S)
        pods = (await server.all(PODS)).values()
        there = [pod for pod in pods if pod["spec"].get("nodeName")]
        looks = looks + 1 if len(there) == before else 0
        before = len(there)
    sizes = [counts[int(pod["metadata"]["name"][1:])] for pod in there]
    nodes = {pod["spec"]["nodeName"] for pod in there}
    return Placed(len(there), sizes.count(PER_HOST), len(nodes))
