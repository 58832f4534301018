"""Pods that ask for devices by DRA, with a real kube-scheduler, which gives the devices out."""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest

from joulie_bus.runtime.ports import free_port
from joulie_process import joulie
from kube_builders import asking, schedulable
from kube_conditions import NODES, PODS, TIMEOUT_S, Condition, placed, pod_of, wait_until
from kube_devices import (
    CLASSES,
    SLICES,
    TEMPLATES,
    claiming,
    device_class,
    eight,
    end_claiming,
    put_claiming,
    resource_slice,
    template,
)
from kube_real import SCHEDULER, Running, program_or_skip
from kube_scheduled import deployed_block, scheduling

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
ONLY_REAL = pytest.mark.parametrize("server", ["real"], indirect=True)
FREED_S = 2.0
COMMAND_S = 3.0  # for the command that looks, on a busy machine
CARDS_W = 8 * 700 * 0.65  # of a pod of class standard, without a preset
CORES = 8


class Scheduled(NamedTuple):
    server: Running
    data: Path
    extender: str


@contextlib.asynccontextmanager
async def scheduled(server: Running, tmp_path: Path) -> AsyncGenerator[Scheduled, None]:
    program_or_skip(SCHEDULER)
    data, extender = tmp_path / "data", f"127.0.0.1:{free_port()}"
    settings = {"EXTENDER_ADDR": extender, "LEASE_DURATION": "15s"}
    async with (
        joulie("up", server.kubeconfig("operator"), data, TIMEOUT_S, **settings),
        scheduling(server, deployed_block("kube-scheduler.yaml", extender)),
    ):
        yield Scheduled(server, data, extender)


def has_cards(cluster: Scheduled, count: int) -> Condition:
    async def condition() -> bool:
        return len((await gpus(cluster.data))["cards"]) == count

    return condition


def has_holders(cluster: Scheduled, count: int) -> Condition:
    async def condition() -> bool:
        return len(holders(await gpus(cluster.data))) == count

    return condition


async def gpus(data: Path) -> dict[str, Any]:
    """What `joulie gpus` shows."""
    command = (sys.executable, "-m", "joulie_cli.main", "gpus", "--json", "--data", str(data))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    found: dict[str, Any] = json.loads(out or '{"cards": []}')
    return found


def holders(found: dict[str, Any]) -> list[str]:
    return [pod for card in found["cards"] for each in card["allocated"] for pod in each["pods"]]


async def added_w(cluster: Scheduled, name: str) -> dict[str, float]:
    """By candidate: what the pod adds, as it was scored."""
    uid = (await pod_of(cluster.server, name))["metadata"]["uid"]

    def read() -> list[dict[str, Any]]:
        with urlopen(f"http://{cluster.extender}/explain/{uid}") as page:
            answers: list[dict[str, Any]] = json.load(page)["answers"]
            return answers

    answers = await asyncio.to_thread(read)
    [scored] = [each for each in answers if each["verb"] == "prioritize"][:1]
    return {terms["node"]: terms["marginal_w"] for terms in scored["best"]}


@ONLY_REAL
async def test_a_pod_with_eight_claimed_cards_holds_them_and_adds_their_watts(
    server: Running, tmp_path: Path
) -> None:
    await server.put(NODES, schedulable("a"), schedulable("b"))
    await server.put(CLASSES, device_class())
    await server.put(TEMPLATES, template("eight", 8))
    await server.put(SLICES, *[resource_slice(name, eight(name)) for name in ("a", "b")])
    asks = claiming("train", "template/eight", cores=CORES, **{"joulie.io/gpu-model": "H100"})
    plain = asking("plain", cpu=str(CORES), memory="16Mi")
    async with scheduled(server, tmp_path) as cluster:
        await wait_until(has_cards(cluster, 16))
        await put_claiming(server, asks)
        await wait_until(placed(server, "train"))
        await wait_until(has_holders(cluster, 8))
        held = await gpus(cluster.data)
        await server.put(PODS, plain)
        await wait_until(placed(server, "plain"))
        of_train, of_plain = [await added_w(cluster, name) for name in ("train", "plain")]
        await end_claiming(server, "train")
        began = time.monotonic()
        await wait_until(has_holders(cluster, 0))
        freed_s = time.monotonic() - began
        after = await gpus(cluster.data)

    [node] = {card["node"] for card in held["cards"] if card["allocated"]}
    assert set(holders(held)) == {"default/train"}
    assert of_train[node] - of_plain[node] == pytest.approx(CARDS_W)
    assert freed_s < FREED_S + COMMAND_S
    assert after["total"]["whole"] == 16
