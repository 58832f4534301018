"""Measures how a real kube-scheduler places pods with different extenders.

    make kube && .venv/bin/python benchmarks/scheduler.py [--nodes 5000] [--pods 1200] [--rounds 5]

etcd, kube-apiserver and kube-scheduler are real; the nodes have no kubelets. kube-scheduler runs
with each of these in turn, several times:

    none               no extender
    echo               an extender that only echoes (`kit/peers.py`)
    bare               a bare extender in Python (`kit/peers.py`)
    joulie             `joulie up`, with the block of deploy/kube-scheduler.yaml
    bare, joulie up    on request: the bare one while `joulie up` runs beside it, which shows the
                       cost of sharing the cores

A round has two parts. First, pods exist before kube-scheduler starts, so that only kube-scheduler
limits the rate: this gives pods per second, CPU per pod, memory, and the most pods on one node. A
cycle is the time in which kube-scheduler chooses the node of one pod, including the extender's
answers. Then pods are created at a steady rate below that: this gives the times from creation to
binding. A pod that is not placed is counted, with the time that it has waited.

`--apart` gives kube-scheduler and the extender a core of their own, as in a cluster. On two cores
all other processes then share the other core, and Joulie's views are late. Pods per second depend
on the machine; the ratios are comparable between machines with as many cores.
"""

import argparse
import asyncio
import ssl
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kit"))  # starts the real programs
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kit/kube"))
sys.path.insert(0, str(Path(__file__).parent / "kit"))

from bindings import Bindings
from extenders_beside import (
    ALONE,
    BARE,
    ECHO,
    OURS,
    SETTINGS,
    cluster_of,
    configured,
    pods_gone,
    require_programs,
)
from process_usage import cpu_s, memory_mib, pin

from joulie_bus.runtime.ports import free_port
from kube_builders import pod
from kube_real import ProgramMissing, Running, all_of
from kube_scheduled import scheduling

WARM = 200  # pods that are not counted
PACED = 300  # pods that are created at a steady rate
PER_S = 50  # their rate
PATIENCE_S = 120.0  # after which a pod counts as not placed
CYCLE = "scheduler_scheduling_algorithm_duration_seconds"
OF_JOULIE = ("up", "extender", "projector", "operator", "nats-server", "console", "ledger")
OTHERS = ("kube-scheduler", "kube-apiserver", "etcd", ECHO, BARE)
PER_SECOND, CYCLE_MS = "pods per second", "ms per cycle"
UNPLACED, MOST = "not placed", "most pods on a node"
Figures = dict[str, float]


def a_pod(name: str, number: int) -> dict[str, Any]:
    """One in four is class performance. Without a grace period, a pod is deleted at once."""
    workload = "" if number % 4 else "performance"
    made = pod(f"{name}-{number}", workload=workload, namespace="default")
    resources = {"requests": {"cpu": "500m", "memory": "1Mi"}}
    made["spec"]["containers"] = [{"name": "c", "image": "none", "resources": resources}]
    made["spec"]["terminationGracePeriodSeconds"] = 0
    return made


# --- one round ----------------------------------------------------------------------------------


class Wanted(NamedTuple):
    nodes: int
    pods: int
    rounds: int
    settings: list[str]
    apart: bool


async def one_round(server: Running, setting: str, wanted: Wanted) -> Figures:
    port = free_port()
    async with (
        configured(setting, server, wanted.nodes) as config,
        Bindings.following(server.api) as bindings,
    ):
        await all_of(bindings.create(a_pod("web", each)) for each in range(WARM + wanted.pods))
        async with scheduling(server, config, port):
            burst = await rate(bindings, wanted)
            burst[CYCLE_MS] = await cycle_ms(port)
            paced = await waits(bindings, wanted)
            await pods_gone(server)
    return burst | paced


async def rate(bindings: Bindings, wanted: Wanted) -> Figures:
    """From the last pod of the warm-up to the last of all, by when pods are seen bound."""
    await bindings.wait_for(1, PATIENCE_S)
    if wanted.apart:
        pin({"kube-scheduler", ECHO, BARE, "extender"})
    await bindings.wait_for(WARM, PATIENCE_S)
    began, used, warm = time.perf_counter(), cpu_s(), len(bindings)
    await bindings.wait_for(WARM + wanted.pods, PATIENCE_S)
    took, then, count = time.perf_counter() - began, cpu_s(), len(bindings) - warm
    cpu = {name: (then[name] - used[name]) * 1000 / count for name in then}
    figures = {PER_SECOND: count / took, MOST: float(bindings.most_on_a_node())}
    return figures | by_program("CPU ms per pod", cpu) | by_program("memory MiB", memory_mib())


async def waits(bindings: Bindings, wanted: Wanted) -> Figures:
    tasks, began = list[asyncio.Task[None]](), time.perf_counter()
    for number in range(PACED):
        await asyncio.sleep(began + number / PER_S - time.perf_counter())
        tasks.append(asyncio.create_task(bindings.create(a_pod("paced", number))))
    await asyncio.gather(*tasks)
    await bindings.wait_for(WARM + wanted.pods + PACED, PATIENCE_S)
    found = bindings.waits(f"paced-{number}" for number in range(PACED))
    unplaced = WARM + wanted.pods + PACED - len(bindings)
    return {
        "create to bound ms, p50": found.p50 * 1000,
        "create to bound ms, p99": found.p99 * 1000,
        "create to bound ms, longest": found.longest * 1000,
        UNPLACED: float(unplaced),
    }


def by_program(what: str, used: dict[str, float]) -> Figures:
    together = sum(used.get(name, 0.0) for name in OF_JOULIE)
    each = {name: used[name] for name in (*OF_JOULIE, *OTHERS) if name in used}
    return {
        f"{what}: {name}": value for name, value in ({"all of Joulie": together} | each).items()
    }


async def cycle_ms(port: int) -> float:
    """From kube-scheduler's metrics, since its start. Its certificate is self-signed."""
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    page = await asyncio.to_thread(urlopen, f"https://127.0.0.1:{port}/metrics", context=unverified)
    with page:
        text = page.read().decode()
    sums = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(CYCLE))
    return float(sums[f"{CYCLE}_sum"]) / float(sums[f"{CYCLE}_count"]) * 1000


# --- all rounds ---------------------------------------------------------------------------------


async def compare(wanted: Wanted) -> None:
    found = defaultdict[str, list[Figures]](list)
    with_joulie = any("joulie" in setting for setting in wanted.settings)
    async with cluster_of(wanted.nodes, with_joulie) as server:
        for number in range(wanted.rounds):
            for setting in wanted.settings:
                figures = await one_round(server, setting, wanted)
                found[setting].append(figures)
                print(
                    f"round {number + 1}, {setting}: {figures[PER_SECOND]:.0f} pods/s", flush=True
                )
    print(f"\n{wanted.nodes} nodes; medians of {wanted.rounds} rounds (the worst in parentheses)\n")
    print(table(found))


def table(found: dict[str, list[Figures]]) -> str:
    """One row per figure, one column per setting."""
    settings = list(found)
    longest_first = sorted(found.values(), key=lambda rounds: -len(rounds[0]))
    rows = dict.fromkeys(row for rounds in longest_first for figures in rounds for row in figures)
    width = max(map(len, rows))
    lines = [line("", settings, width)]
    lines += [line(row, [cell(row, found[name]) for name in settings], width) for row in rows]
    if BARE in found:
        bare = median(figures[PER_SECOND] for figures in found[BARE])
        rates = [median(figures[PER_SECOND] for figures in found[name]) for name in settings]
        lines.insert(2, line("of the bare one's", [f"{each / bare:.2f}" for each in rates], width))
    return "\n".join(lines)


def cell(row: str, rounds: list[Figures]) -> str:
    values = [figures[row] for figures in rounds if row in figures]
    if not values:
        return "-"
    worst = min(values) if row == PER_SECOND else max(values)
    return f"{rounded(median(values))} ({rounded(worst)})"


def rounded(value: float) -> str:
    return f"{value:.2f}" if value % 1 and value < 20 else f"{value:.0f}"


def line(row: str, cells: list[str], width: int) -> str:
    return f"{row:<{width}}" + "".join(f"{each:>17}" for each in cells)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--nodes", type=int, default=5000)
    options.add_argument("--pods", type=int, default=1200)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--ask", nargs="*", choices=SETTINGS, default=[ALONE, ECHO, BARE, OURS])
    options.add_argument(
        "--apart", action="store_true", help="a core for kube-scheduler and extender"
    )
    args = options.parse_args()
    try:
        require_programs()
    except ProgramMissing as missing:
        print(f"not measured: {missing}")
        return
    asyncio.run(compare(Wanted(args.nodes, args.pods, args.rounds, args.ask, args.apart)))


if __name__ == "__main__":
    main()
