"""Measures devices of DRA with a real kube-apiserver: how soon they are known, and claiming pods
that a real kube-scheduler places.

    .venv/bin/python benchmarks/devices.py [--nodes 1000] [--claims 10000] [--pods 400]

- known: from the start of `joulie up` beside a cluster that has all its nodes, ResourceSlices and
  ResourceClaims until the database has every card with its holder, through operator, broker and
  projector. And from the moment at which it has the first card.
- placed: pods with one claim each, all created before kube-scheduler starts; per second between
  the first and the last Binding, with Joulie and without an extender.

All programs share the machine. It needs the programs of `make kube`.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
from sqlalchemy.exc import SQLAlchemyError

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kit"))  # starts the real programs
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kit/kube"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kit/process"))
sys.path.insert(0, str(Path(__file__).parent / "kit"))

from bindings import Bindings
from extenders_beside import UNTHROTTLED, require_programs

from joulie_bus.errors import JoulieError
from joulie_bus.runtime.ports import free_port
from joulie_operator.kube.api_client import object_path
from joulie_process import joulie
from joulie_projections.history.history import History
from joulie_projections.state.cards import is_idle
from joulie_projections.state.state import ClusterState
from kube_builders import schedulable
from kube_conditions import NODES
from kube_devices import (
    CLAIMS,
    CLASSES,
    DRIVER,
    OF_TEMPLATE,
    SLICES,
    TEMPLATES,
    Tree,
    claim,
    claiming,
    device_class,
    eight,
    put_claiming,
    resource_slice,
    template,
)
from kube_real import ASSETS, ProgramMissing, Running, all_of, program, real_server
from kube_scheduled import deployed_block, scheduling

PER_HOST, LOOK_S, PATIENCE_S = 8, 0.2, 600.0
SETTINGS = {"LEASE_DURATION": "15s", "RECONCILE_INTERVAL": "1m", "LOG_LEVEL": "warning"}


class Known(NamedTuple):
    from_start_s: float
    from_first_s: float


@contextlib.asynccontextmanager
async def cluster(nodes: int) -> AsyncGenerator[Running, None]:
    """Nodes with eight devices each."""
    assets = program(ASSETS, "kube-apiserver").parent
    with tempfile.TemporaryDirectory() as place:
        async with real_server(Path(place) / "server", assets) as server:
            names = [name_of(at) for at in range(nodes)]
            await all_of(server.put(NODES, schedulable(name)) for name in names)
            await all_of(server.put(SLICES, resource_slice(name, eight(name))) for name in names)
            await server.put(CLASSES, device_class())
            await server.put(TEMPLATES, template("one", 1))
            yield server


def name_of(number: int) -> str:
    return f"n{number:04d}"


async def put_claims(server: Running, claims: int, devices: int) -> None:
    """As many are allocated as there are devices; the others wait."""

    async def put(number: int) -> None:
        name = f"c{number}"
        made = claim(name, 1)
        made["metadata"]["annotations"] = {OF_TEMPLATE: "gpus"}
        there = msgspec.json.decode(await server.api.create(CLAIMS, made))
        if number < devices:
            await server.api.replace(object_path(CLAIMS, name, "status"), allocated(there, number))

    await all_of(map(put, range(claims)))


def allocated(made: Tree, number: int) -> Tree:
    node, device = name_of(number // PER_HOST), f"gpu-{number % PER_HOST}"
    result = {"request": "gpus", "driver": DRIVER, "pool": node, "device": device}
    holder = f"p{number}"
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": holder, "uid": holder}],
    }
    return made | {"status": status}


async def known(server: Running, held: int) -> Known:
    data, began, first = server.directory / "known", time.monotonic(), 0.0
    settings = SETTINGS | {"EXTENDER_ADDR": f"127.0.0.1:{free_port()}"}
    async with joulie("up", server.kubeconfig("operator"), data, PATIENCE_S, **settings):
        while True:
            now = time.monotonic()
            count = held_in(data)
            first = first or (now if count else 0.0)
            if count == held:
                return Known(now - began, now - first)
            assert now < began + PATIENCE_S, f"{count} of {held}"
            await asyncio.sleep(LOOK_S)


def held_in(data: Path) -> int:
    return _in(data, lambda state: sum(not is_idle(card) for card in state.gpus.values()))


def _in(data: Path, count: Callable[[ClusterState], int]) -> int:
    with (
        contextlib.suppress(JoulieError, SQLAlchemyError),
        History.of(data / "joulie.db") as history,
    ):
        return count(history.cluster_state())
    return 0


async def placed(server: Running, nodes: int, pods: int, preset: str) -> float:
    """Pods a second; without an extender if there is no preset."""
    async with contextlib.AsyncExitStack() as stack:
        config: Tree = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
        }
        if preset:
            extender, data = f"127.0.0.1:{free_port()}", server.directory / preset
            config = deployed_block("kube-scheduler.yaml", extender)
            for block in config["extenders"]:
                block["httpTimeout"] = "10s"
            settings = SETTINGS | {"EXTENDER_ADDR": extender, "PRESET": preset}
            operator = server.kubeconfig("operator")
            await stack.enter_async_context(joulie("up", operator, data, PATIENCE_S, **settings))
            while _in(data, lambda state: len(state.gpus)) < nodes * PER_HOST:
                await asyncio.sleep(LOOK_S)
        config["clientConnection"] = UNTHROTTLED
        bindings = await stack.enter_async_context(Bindings.following(server.api))
        prefix = preset or "none"
        await put_claiming(
            server, *[claiming(f"{prefix}-{at}", "template/one", cores=0) for at in range(pods)]
        )
        await stack.enter_async_context(scheduling(server, config))
        await bindings.wait_for(1, PATIENCE_S)
        began, warm = time.perf_counter(), len(bindings)
        assert await bindings.wait_for(pods, PATIENCE_S), f"{len(bindings)} of {pods} placed"
        return (len(bindings) - warm) / (time.perf_counter() - began)


async def measure(nodes: int, claims: int, pods: int) -> None:
    if claims:
        async with cluster(nodes) as server:
            await put_claims(server, claims, nodes * PER_HOST)
            found = await known(server, min(claims, nodes * PER_HOST))
        print(
            f"{nodes} slices, {nodes * PER_HOST} devices, {claims} claims: known "
            f"{found.from_start_s:.1f} s after the start, {found.from_first_s:.1f} s after the "
            "first",
            flush=True,
        )
    for preset in ("", "savings", "headroom") if pods else ():
        async with cluster(100) as server:
            per_s = await placed(server, 100, pods, preset)
        print(f"{preset or 'no extender':<12}{per_s:>8.1f} claiming pods/s", flush=True)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--nodes", type=int, default=1000)
    options.add_argument("--claims", type=int, default=10_000)
    options.add_argument("--pods", type=int, default=400)
    args = options.parse_args()
    try:
        require_programs()
    except ProgramMissing as missing:
        print(missing)
        return
    asyncio.run(measure(args.nodes, args.claims, args.pods))


if __name__ == "__main__":
    main()
