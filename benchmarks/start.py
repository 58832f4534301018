"""Measures the start of Joulie on an empty cluster: NodeTwins, kube-apiserver, and memory.

    make kube && make bench NAME=start [ARGS="--nodes 5000 --rate 200"]

etcd and kube-apiserver are real, and `joulie up` runs beside them. The time starts with the
process and ends when all nodes have a NodeTwin with a status. CPU is that of the programs in this
time. Meanwhile another client lists 500 nodes each second. The writes are those in the audit log
of kube-apiserver. The memory of each process is read a minute after the last write.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from extenders_beside import (
    ENVIRON,
    LOOK_S,
    PATIENCE_S,
    a_node,
    at_rest,
    components_of,
    data_of,
)
from process_usage import IMPORTS, Process, cpu_s, descendants, require
from report import Table

from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.tasks import background
from joulie_operator.kube.api_client import ApiServer
from joulie_process import joulie
from kube_conditions import NODES
from kube_real import ASKED, ASSETS, Running, all_of, program, real_server

LIST_EVERY_S = 1.0
SMALLEST = {"nodes": 20, "rest": 3.0}
VERBS = ("create", "patch", "update", "delete")
CLUSTER = ("kube-apiserver", "etcd")


class Start(NamedTuple):
    took_s: float
    cpu_s: dict[str, float]  # of each program
    lists_ms: list[float]


class Writes:
    """Reads the audit log of kube-apiserver as it grows."""

    def __init__(self, server: Running) -> None:
        self._log = (server.directory / ASKED).open("rb")
        self._rest = b""
        self.counts = Counter[str]()
        self.described = set[str]()  # nodes whose NodeTwin has a status

    def read(self) -> None:
        *lines, self._rest = (self._rest + self._log.read()).split(b"\n")
        for line in lines:
            asked = json.loads(line)
            if asked["verb"] not in VERBS or asked["objectRef"]["resource"] == "leases":
                continue
            of, code = asked["objectRef"], asked["responseStatus"]["code"]
            resource = "/".join(filter(None, (of["resource"], of.get("subresource", ""))))
            self.counts[resource if code < 300 else f"{resource}: {code}"] += 1
            if resource == "nodetwins/status" and code < 300:
                self.described.add(of["name"])


async def lists(api: ApiServer, took_ms: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await api.get(f"{NODES}?limit=500")
        took_ms.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(LIST_EVERY_S)


async def start(server: Running, writes: Writes, nodes: int) -> Start:
    """Waits until all NodeTwins have a status."""
    took_ms: list[float] = []
    began, used = time.perf_counter(), cpu_s()
    async with asyncio.timeout(PATIENCE_S), background(lists(server.api, took_ms), "lists"):
        while len(writes.described) < nodes:
            await asyncio.sleep(0.2)
            writes.read()
    took_s, then = time.perf_counter() - began, cpu_s()
    return Start(took_s, {name: then[name] - used.get(name, 0.0) for name in then}, took_ms)


async def of_cluster(args: argparse.Namespace) -> list[Table]:
    assets, nodes = program(ASSETS, "kube-apiserver").parent, args.nodes
    environ = {"APPLY_RATE": args.rate} if args.rate else {}
    with tempfile.TemporaryDirectory() as place:
        async with real_server(Path(place) / "server", assets) as server:
            await all_of(server.api.create(NODES, a_node(number)) for number in range(nodes))
            await asyncio.sleep(LOOK_S)
            settings = ENVIRON | {"EXTENDER_ADDR": f"127.0.0.1:{free_port()}"} | environ
            operator, data = server.kubeconfig("operator"), data_of(server)
            writes, began = Writes(server), time.perf_counter()
            async with joulie("up", operator, data, PATIENCE_S, **settings):
                done = await start(server, writes, nodes)
                await at_rest(server, nodes)
                all_s = time.perf_counter() - began
                writes.read()
                await asyncio.sleep(args.rest)
                components = [*components_of(server), IMPORTS]
                return [
                    times(done, all_s),
                    Table.of("writes", writes.counts),
                    programs(done, components, nodes),
                ]


def times(done: Start, all_s: float) -> Table:
    figures = {
        "all NodeTwins have a status after s": done.took_s,
        "all labels and events after s": all_s,
        "another client lists 500 nodes, median ms": median(done.lists_ms),
        "another client lists 500 nodes, slowest ms": max(done.lists_ms),
    }
    return Table.of("start", figures)


def programs(done: Start, components: Sequence[str], nodes: int) -> Table:
    """CPU until all NodeTwins have a status; memory at rest, and its maximum so far."""
    require(components, (name for name, used in done.cpu_s.items() if used))
    found = [process for process in descendants() if process.name in (*components, *CLUSTER)]
    rows = dict[str, dict[str, float]]()
    for name in (*components, *CLUSTER):
        sizes = [mib(process) for process in found if process.name == name]
        rows[name] = {
            "CPU s": done.cpu_s[name],
            "CPU ms a node": done.cpu_s[name] / nodes * 1000,
            "resident MiB": sum(size for size, _ in sizes),
            "at most MiB": sum(most for _, most in sizes),
        }
    return Table(title="programs", rows=rows)


def mib(process: Process) -> tuple[float, float]:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    kib = dict(line.split(":", 1) for line in lines)
    return int(kib["VmRSS"].split()[0]) / 1024, int(kib["VmHWM"].split()[0]) / 1024


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rate", default="", help="APPLY_RATE")
    parser.add_argument("--rest", type=float, default=60.0, help="seconds before memory is read")


def measured(args: argparse.Namespace) -> list[Table]:
    return asyncio.run(of_cluster(args))
