"""Measures devices of DRA with a real kube-apiserver: how soon they are known, and claiming pods
that a real kube-scheduler places.

    make kube && make bench NAME=devices [ARGS="--nodes 1000 --claims 10000 --pods 400"]

- known: from the start of `joulie up` beside a cluster that has all its nodes, ResourceSlices and
  ResourceClaims, and a pod for each ResourceClaim, until the database has every card with its
  holder and every pod, and the view of the extender has them, through operator, broker and
  projector. And from the moment at which the database has the first of them. Beside it, as many
  pods without claims.
- placed: pods with one claim each on 100 nodes, all created before kube-scheduler starts; per
  second between the first and the last Binding, and the CPU of each program for a pod. With Joulie,
  without an extender, and with a bare one, which answers at once; in turns.

All programs share the machine. It needs the programs of `make kube`.
"""

import argparse
import asyncio
import contextlib
import itertools
import sqlite3
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
from bindings import Bindings
from extenders_beside import ALONE, BARE, UNTHROTTLED, peer, require_programs
from process_usage import BENCHMARK, cpu_s
from readings import node_name
from report import Table
from sqlalchemy.exc import SQLAlchemyError

from joulie_answers.readers.gauges import gauges_of
from joulie_bus.errors import JoulieError
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.presets import HEADROOM, SAVINGS
from joulie_operator.kube.api_client import object_path
from joulie_process import joulie
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.history.history import History
from kube_builders import asking
from kube_conditions import PODS
from kube_devices import (
    CLAIMS,
    DRIVER,
    Tree,
    claim,
    claiming,
    put_claiming,
    put_nodes_of_eight,
)
from kube_real import ASSETS, Running, all_of, program, real_server
from kube_scheduled import deployed_block, scheduling

HOSTS = 100  # of those on which pods are placed
SCHEDULED = (ALONE, BARE, SAVINGS, HEADROOM)
PER_HOST, LOOK_S, PATIENCE_S = 8, 0.2, 600.0
KNOWN = """SELECT (SELECT count(*) FROM pod)
    + (SELECT count(*) FROM gpu WHERE instr(body, CAST('claims' AS blob)))"""
SMALLEST = {"nodes": 20, "claims": 40, "pods": 20, "rounds": 1}
CLUSTER, HELPERS = ("kube-scheduler", "kube-apiserver", "etcd"), (BENCHMARK, BARE)
AFTER_START, AFTER_FIRST = "s after the start", "s after the first is known"
PER_SECOND = "claiming pods per second"
OF_CLUSTER, OF_JOULIE = "CPU ms per pod, of the cluster", "CPU ms per pod, of Joulie"
SETTINGS = {"LEASE_DURATION": "15s", "RECONCILE_INTERVAL": "1m", "LOG_LEVEL": "warning"}


class Known(NamedTuple):
    from_start_s: float
    from_first_s: float

    @property
    def row(self) -> dict[str, float]:
        return {AFTER_START: self.from_start_s, AFTER_FIRST: self.from_first_s}


@contextlib.asynccontextmanager
async def cluster(nodes: int) -> AsyncGenerator[Running, None]:
    """Nodes with eight devices each."""
    assets = program(ASSETS, "kube-apiserver").parent
    with tempfile.TemporaryDirectory() as place:
        async with real_server(Path(place) / "server", assets) as server:
            names = [node_name(at) for at in range(nodes)]
            await put_nodes_of_eight(server, names, [("one", 1)])
            yield server


async def put_held(server: Running, claims: int, devices: int) -> None:
    """Pods with a claim each. As many are allocated as there are devices; the others wait."""

    async def put(number: int) -> None:
        name = f"c{number}"
        node = node_name(number // PER_HOST) if number < devices else ""
        pod = await put_pod(server, claiming(f"p{number}", f"claim/{name}", cores=0), node)
        there = msgspec.json.decode(await server.api.create(CLAIMS, claim(name, 1)))
        if node:
            whole = allocated(there, node, number, pod)
            await server.api.replace(object_path(CLAIMS, name, "status"), whole)

    await all_of(map(put, range(claims)))


async def put_plain(server: Running, pods: int, nodes: int) -> None:
    await all_of(
        put_pod(server, asking(f"p{at}", cpu="0", memory="16Mi"), node_name(at % nodes))
        for at in range(pods)
    )


async def put_pod(server: Running, pod: Tree, node: str) -> Tree:
    pod["spec"] |= {"nodeName": node} if node else {}
    made: Tree = msgspec.json.decode(await server.api.create(PODS, pod))
    return made


def allocated(made: Tree, node: str, number: int, pod: Tree) -> Tree:
    device = f"gpu-{number % PER_HOST}"
    result = {"request": "gpus", "driver": DRIVER, "pool": node, "device": device}
    holder = {"resource": "pods", "name": f"p{number}", "uid": pod["metadata"]["uid"]}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [holder]}
    return made | {"status": status}


async def known(server: Running, pods: int, held: int) -> Known:
    data, began, first = server.directory / "known", time.monotonic(), 0.0
    settings = SETTINGS | {"EXTENDER_ADDR": f"127.0.0.1:{free_port()}"}
    async with joulie("up", server.kubeconfig("operator"), data, PATIENCE_S, **settings):
        while True:
            now, count = time.monotonic(), known_in(data)
            first = first or (now if count else 0.0)
            if count == held + pods and is_in_view(data):
                return Known(now - began, now - first)
            assert now < began + PATIENCE_S, f"{count} of {held + pods}"
            await asyncio.sleep(LOOK_S)


def known_in(data: Path) -> int:
    """Pods, and cards that are held. To read the whole state each time would take a core from those
    who are measured."""
    with contextlib.suppress(sqlite3.Error), closing(sqlite3.connect(data / "joulie.db")) as rows:
        found: int = rows.execute(KNOWN).fetchone()[0]
        return found
    return 0


def is_in_view(data: Path) -> bool:
    """Whether the extender has what the projector has."""
    running = DataDirectory(data).running()
    gauges = gauges_of(running.metrics) if running else {}
    positions = {name: each.get("joulie_position") for name, each in gauges.items()}
    return positions.get("extender") == positions.get("projector")


def cards_in(data: Path) -> int:
    with (
        contextlib.suppress(JoulieError, SQLAlchemyError),
        History.of(data / "joulie.db") as history,
    ):
        return len(history.cluster_state().gpus)
    return 0


async def placed(server: Running, pods: int, setting: str) -> dict[str, float]:
    async with contextlib.AsyncExitStack() as stack:
        config = await stack.enter_async_context(configured(server, setting))
        config["clientConnection"] = UNTHROTTLED
        bindings = await stack.enter_async_context(Bindings.following(server.api))
        await put_claiming(
            server, *[claiming(f"p{at}", "template/one", cores=0) for at in range(pods)]
        )
        await stack.enter_async_context(scheduling(server, config))
        await bindings.wait_for(1, PATIENCE_S)
        began, used, warm = time.perf_counter(), cpu_s(), len(bindings)
        assert await bindings.wait_for(pods, PATIENCE_S), f"{len(bindings)} of {pods} placed"
        took, then, count = time.perf_counter() - began, cpu_s(), len(bindings) - warm
        each = {name: (then[name] - used.get(name, 0.0)) * 1000 / count for name in then}
        cluster_ms = sum(each.pop(name) for name in CLUSTER)
        joulie_ms = sum(ms for name, ms in each.items() if name not in HELPERS)
        return {PER_SECOND: count / took, OF_CLUSTER: cluster_ms, OF_JOULIE: joulie_ms}


@contextlib.asynccontextmanager
async def configured(server: Running, setting: str) -> AsyncGenerator[Tree, None]:
    """kube-scheduler's configuration, while the extender of this setting runs."""
    async with contextlib.AsyncExitStack() as stack:
        if setting == ALONE:
            address = ""
        elif setting == BARE:
            address = await stack.enter_async_context(peer(BARE, HOSTS, server.directory))
        else:
            address = await stack.enter_async_context(ours(server, setting))
        config = deployed_block("kube-scheduler.yaml", address)
        config["extenders"] = config["extenders"] if address else []
        for block in config["extenders"]:
            block["httpTimeout"] = "10s"
            if setting == BARE:
                del block["preemptVerb"]  # the peer has no such verb
        yield config


@contextlib.asynccontextmanager
async def ours(server: Running, preset: str) -> AsyncGenerator[str, None]:
    extender, data = f"127.0.0.1:{free_port()}", server.directory / preset
    settings = SETTINGS | {"EXTENDER_ADDR": extender, "PRESET": preset}
    async with joulie("up", server.kubeconfig("operator"), data, PATIENCE_S, **settings):
        while cards_in(data) < HOSTS * PER_HOST:
            await asyncio.sleep(LOOK_S)
        yield extender


async def measure_known(nodes: int, claims: int) -> Table:
    devices, rows = nodes * PER_HOST, dict[str, dict[str, float]]()
    async with cluster(nodes) as server:
        await put_held(server, claims, devices)
        found = await known(server, claims, min(claims, devices))
    rows[f"{nodes} slices, {devices} devices, {claims} claims and pods"] = found.row
    async with cluster(nodes) as server:
        await put_plain(server, claims, nodes)
        rows[f"{claims} pods without claims"] = (await known(server, claims, 0)).row
    return Table(title="known", rows=rows, zero={AFTER_FIRST})


async def measure(args: argparse.Namespace) -> list[Table]:
    tables = [await measure_known(args.nodes, args.claims)] if args.claims else []
    found = defaultdict[str, list[dict[str, float]]](list)
    for _, setting in itertools.product(range(args.rounds), SCHEDULED if args.pods else ()):
        async with cluster(HOSTS) as server:
            found[setting].append(await placed(server, args.pods, setting))
    rows = {
        setting: {name: median(each[name] for each in rounds) for name in rounds[0]}
        for setting, rounds in found.items()
    }
    return [*tables, Table(title="placed", rows=rows, zero={ALONE, BARE})] if rows else tables


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--claims", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=2)


def measured(args: argparse.Namespace) -> list[Table]:
    require_programs()
    return asyncio.run(measure(args))
