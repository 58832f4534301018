"""The devices that `joulie explain` names, against those that a real kube-scheduler gives out.

From 1.36 on all names; before, the allocator takes pools in random order, and the numbers count.
KUBE_BIN=.kube/bin-1.37.2 before it: with that version.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from joulie_bus.runtime.ports import free_port
from joulie_process import joulie
from kube_builders import schedulable
from kube_conditions import NODES, TIMEOUT_S, Condition, placed, wait_until
from kube_devices import (
    CLAIMS,
    CLASSES,
    SLICES,
    TEMPLATES,
    Tree,
    claiming,
    device,
    device_class,
    put_claiming,
    resource_slice,
    template,
)
from kube_real import SCHEDULER, Running, program_or_skip
from kube_scheduled import deployed_block, scheduling
from seen_positions import committed, read_by_extender

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
ONLY_REAL = pytest.mark.parametrize("server", ["real"], indirect=True)
IN_ORDER_SINCE = 36  # the minor version
ASKS = (1, 2, 3, 1, 4, 2, 1, 3, 2, 1, 2, 4)


def slices_of(node: str) -> list[Tree]:
    """Two pools with two slices each. Neither pools, slices nor devices are in order."""
    found = []
    for pool in ("z-first", "a-last"):
        for number, slice_name in enumerate(("m", "c")):
            names = [f"gpu-{slice_name}-{at}" for at in (3, 1, 2)]
            devices = [device(name, uuid=f"GPU-{node}-{pool}-{name}") for name in names]
            made = resource_slice(node, devices, number=number, of=2)
            made["metadata"]["name"] = f"{node}-{pool}-{slice_name}"
            made["spec"]["pool"]["name"] = f"{node}-{pool}"
            found.append(made)
    return found


def partitioned(node: str) -> list[Tree]:
    """A card of which the whole or two halves can be given out."""
    counters = {"name": "card", "counters": {"memory": {"value": "80Gi"}}}
    shared = resource_slice(node, [], number=0, of=2)
    del shared["spec"]["devices"]
    shared["spec"]["sharedCounters"] = [counters]

    def part(name: str, memory: str) -> Tree:
        takes = [{"counterSet": "card", "counters": {"memory": {"value": memory}}}]
        made = device(name, consumesCounters=takes)
        return made | {"capacity": {"memory": {"value": memory}}}

    parts = [part("whole", "80Gi"), part("half-0", "40Gi"), part("half-1", "40Gi")]
    return [shared, resource_slice(node, parts, number=1, of=2)]


def consumable(node: str) -> list[Tree]:
    """Cards that several claims may share."""
    return [
        resource_slice(
            node, [device(f"gpu-{at}", allowMultipleAllocations=True) for at in range(2)]
        )
    ]


async def explained(data: Path, pod: str) -> dict[str, Any] | None:
    """What `joulie explain` says of devices."""
    command = (sys.executable, "-m", "joulie_cli.main", "explain", pod, "-o", "json")
    process = await asyncio.create_subprocess_exec(
        *command, "--data", str(data), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    found: dict[str, Any] | None = (json.loads(out).get("attempt") or {}).get("devices")
    return found


async def given(server: Running, pod: str) -> list[str]:
    """The devices of the pod's claim, in the order of its allocation."""
    claim = (await server.all(CLAIMS))[f"{pod}-gpus"]
    return [each["device"] for each in claim["status"]["allocation"]["devices"]["results"]]


def in_view(data: Path, cards: int, taken: int = 0) -> Condition:
    """The view has so many cards of DRA, and so many with claims."""

    async def condition() -> bool:
        found = [each.device for each in committed(data).state.gpus.values()]
        known = [each for each in found if each is not None]
        return len(known) >= cards and sum(bool(each.claims) for each in known) >= taken

    return condition


def bound_for_extender(data: Path, pod: str, extender: str) -> Condition:
    """The extender has read that the pod is bound: it is no longer in flight."""

    async def condition() -> bool:
        state, position = committed(data)
        if pod not in {each.pod.name for each in state.pods.values() if each.node}:
            return False
        return await read_by_extender(extender) >= position

    return condition


@ONLY_REAL
async def test_the_devices_that_a_pod_takes_are_those_that_were_foretold(
    server: Running, tmp_path: Path
) -> None:
    program_or_skip(SCHEDULER)
    is_named = int(server.version.split(".")[1]) >= IN_ORDER_SINCE
    await with_devices(server, is_newest=is_named)
    data, extender = tmp_path / "data", f"127.0.0.1:{free_port()}"
    settings = {"EXTENDER_ADDR": extender, "LEASE_DURATION": "15s"}
    asks = [(f"p{at}", count, "plain") for at, count in enumerate(ASKS)]
    asks += [("part", 1, "parts"), ("share", 1, "shares")] if is_named else []
    found = []
    async with (
        joulie("up", server.kubeconfig("operator"), data, TIMEOUT_S, **settings),
        scheduling(server, deployed_block("kube-scheduler.yaml", extender)),
    ):
        await wait_until(in_view(data, 42 if is_named else 36))
        taken = 0
        for name, count, pool in asks:
            pod = claiming(name, f"template/of-{count}", cores=1)
            pod["spec"]["nodeSelector"] = {"pool": pool}
            await put_claiming(server, pod)
            await wait_until(placed(server, name))
            taken += count
            await wait_until(in_view(data, 0, taken))
            await wait_until(bound_for_extender(data, name, extender))
            found.append((pool, await explained(data, name), await given(server, name)))

    named = [said for pool, said, _ in found if pool == "plain" and said and said["names"]]
    print(f"\n{server.version}: {len(named)} of {len(ASKS)} named, {len(found)} counted")
    for pool, said, devices in found:
        assert said is not None
        assert said["count"] == len(devices)
        assert said["names"] == (devices if is_named and pool == "plain" else [])


async def with_devices(server: Running, *, is_newest: bool) -> None:
    """Of each kind two nodes: kube-scheduler asks for no scores if only one node fits."""
    kinds = {"plain": slices_of}
    kinds |= {"parts": partitioned, "shares": consumable} if is_newest else {}
    for pool, slices in kinds.items():
        for at in range(3 if pool == "plain" else 2):
            node = schedulable(f"{pool}-{at}")
            node["metadata"]["labels"]["pool"] = pool
            await server.put(NODES, node)
            for each in slices(f"{pool}-{at}"):
                await server.put(SLICES, each)
    await server.put(CLASSES, device_class())
    for count in sorted(set(ASKS)):
        await server.put(TEMPLATES, template(f"of-{count}", count))
