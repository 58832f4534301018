"""Measures the start of Joulie on an empty cluster: NodeTwins, kube-apiserver, and memory.

    make kube && .venv/bin/python benchmarks/start.py [--nodes 5000] [--rate 200]

etcd and kube-apiserver are real, and `joulie up` runs beside them. The time starts with the
process and ends when all nodes have a NodeTwin with a status. CPU is that of the programs in this
time. Meanwhile another client lists 500 nodes each second. The writes are those in the audit log
of kube-apiserver. The memory of each process is read a minute after the last write.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kit"))  # starts the real programs
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kit/kube"))
sys.path.insert(0, str(Path(__file__).parent / "kit"))

from extenders_beside import ENVIRON, LOOK_S, PATIENCE_S, a_node, at_rest, data_of
from process_usage import Process, cpu_s, descendants

from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.tasks import background
from joulie_operator.kube.api_client import ApiServer
from joulie_process import joulie
from kube_conditions import NODES
from kube_real import ASKED, ASSETS, ProgramMissing, Running, all_of, program, real_server

LIST_EVERY_S = 1.0
REST_S = 60.0
VERBS = ("create", "patch", "update", "delete")
PROGRAMS = ("kube-apiserver", "etcd")  # not Joulie's; nor is this process


class Start(NamedTuple):
    took_s: float
    cores: dict[str, float]  # used by each program
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
            of, code = asked["objectRef"], asked["responseStatus"]["code"]
            if asked["verb"] not in VERBS or of["resource"] == "leases":
                continue
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
    cores = {name: (then[name] - used.get(name, 0.0)) / took_s for name in then}
    return Start(took_s, cores, took_ms)


async def measured(nodes: int, environ: dict[str, str]) -> None:
    assets = program(ASSETS, "kube-apiserver").parent
    with tempfile.TemporaryDirectory() as place:
        async with real_server(Path(place) / "server", assets) as server:
            await all_of(server.api.create(NODES, a_node(number)) for number in range(nodes))
            await asyncio.sleep(LOOK_S)
            settings = ENVIRON | {"EXTENDER_ADDR": f"127.0.0.1:{free_port()}"} | environ
            operator, data = server.kubeconfig("operator"), data_of(server)
            writes, began = Writes(server), time.perf_counter()
            async with joulie("up", operator, data, PATIENCE_S, **settings):
                show(await start(server, writes, nodes))
                await at_rest(server, nodes)
                writes.read()
                show_writes(writes.counts, time.perf_counter() - began)
                await asyncio.sleep(REST_S)
                show_memory(descendants())


def show(done: Start) -> None:
    print(f"{'all NodeTwins have a status after':<36}{done.took_s:>8.1f} s")
    for name, cores in sorted(done.cores.items(), key=lambda each: -each[1]):
        if cores >= 0.01:
            print(f"{'  cores, ' + name:<36}{cores:>8.2f}")
    slowest, half = max(done.lists_ms), median(done.lists_ms)
    print(
        f"{'another client lists 500 nodes':<36}{half:>8.0f} ms, at most {slowest:.0f}", flush=True
    )


def show_writes(counts: Counter[str], took_s: float) -> None:
    print(f"{'all labels and events after':<36}{took_s:>8.1f} s")
    print("writes: " + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))


def show_memory(found: Iterable[Process]) -> None:
    """Resident memory now, and its maximum so far, of each process of Joulie."""
    sizes = [(each.name, *mib(each.pid)) for each in found if is_ours(each)]
    print(f"{'':<16}{'resident MiB':>14}{'at most MiB':>14}")
    for name, resident, most in sorted(sizes):
        print(f"{name:<16}{resident:>14.0f}{most:>14.0f}")
    print(f"{'all':<16}{sum(size for _, size, _ in sizes):>14.0f}")


def is_ours(process: Process) -> bool:
    return process.pid != os.getpid() and process.name not in PROGRAMS


def mib(pid: int) -> tuple[float, float]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = dict(line.split(":") for line in lines)
    return int(kib["VmRSS"].split()[0]) / 1024, int(kib["VmHWM"].split()[0]) / 1024


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--nodes", type=int, default=5000)
    options.add_argument("--rate", default="", help="APPLY_RATE")
    args = options.parse_args()
    try:
        program(ASSETS, "kube-apiserver")
    except ProgramMissing as missing:
        print(f"not measured: {missing}")
        return
    asyncio.run(measured(args.nodes, {"APPLY_RATE": args.rate} if args.rate else {}))


if __name__ == "__main__":
    main()
