"""Measures how a real kube-scheduler places pods with different extenders, and what each costs.

    make kube && make bench NAME=scheduler [ARGS="--nodes 5000 --pods 1200 --rounds 5"]

etcd, kube-apiserver and kube-scheduler are real; the nodes have no kubelets, but the status of each
bound pod is updated four times, as a kubelet does. A tenth of the nodes has eight cards, and a
tenth of the pods asks for one. kube-scheduler runs with each of these in turn, several times:

    none                no extender
    echo                an extender that only echoes (`kit/peers.py`)
    bare                a bare extender in Python (`kit/peers.py`)
    savings             `joulie up` with PRESET=savings, called as deploy/kube-scheduler.yaml says
    headroom            the same with PRESET=headroom
    savings, page open  with a client of the console's stream
    bare, joulie up     the bare extender while `joulie up` runs beside it, which shows the cost of
                        sharing the cores

Beside `joulie up`, readings of the nodes are published, 500 a second. Pods exist before
kube-scheduler starts, so that only kube-scheduler limits the rate: this gives pods per second and
the most pods on one node. A cycle is the time in which kube-scheduler chooses the node of one pod,
including the extender's answers. Then pods are created at a steady rate below that: this gives the
times from creation to binding. A pod that is not placed is counted, with the time that it has
waited.

The same steady pods give the CPU per pod: windows in which pods come, and windows of the same
length without pods, follow each other, and their difference is what the pods cost, beside the
readings of both. It is not measured while kube-scheduler takes all cores: components then gather
more readings at once than at rest, and a difference would be below the cost of the pods, or even
below zero. The error of a difference is printed beside it; pods that together seem to cost nothing
are refused.

`--apart` gives kube-scheduler and the extender a core of their own, as in a cluster. On two cores
all other processes then share the other core, and Joulie's views are late. Milliseconds depend on
the machine; compare the ratios to kube-scheduler's own CPU and to the bare extender in the same
rounds, on machines with as many cores.
"""

import argparse
import asyncio
import contextlib
import ssl
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from statistics import median
from typing import Any, NamedTuple
from urllib.request import urlopen

from bindings import Bindings
from extenders_beside import (
    ALONE,
    BARE,
    ECHO,
    PAGED,
    PRESETS,
    SETTINGS,
    absorbed,
    cluster_of,
    components_of,
    configured,
    console_of,
    kubelets,
    pods_gone,
    readings,
    require_programs,
)
from pod_cost import CPU, ERROR, REST, Window, cost_of, per_pod, require_cost, used_during
from process_usage import IMPORTS, REPORT, memory_mib, pin, require
from report import Table

from console_kit import open_stream
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.presets import HEADROOM, SAVINGS
from joulie_bus.runtime.tasks import background
from kube_builders import pod
from kube_real import Running, all_of
from kube_scheduled import scheduling

SMALLEST = {
    "nodes": 60,
    "pods": 20,
    "rounds": 1,
    "warm": 4,
    "paced": 100,
    "windows": 3,
    "readings": 50,
    "ask": [BARE, SAVINGS, PAGED],
}
PER_S = 10  # the rate of the paced pods: two cores are not busy with it
PATIENCE_S = 120.0  # after which a pod counts as not placed
CYCLE = "scheduler_scheduling_algorithm_duration_seconds"
UP, SCHEDULER, SUPERVISOR = "up", "kube-scheduler", 2
# The figures of a round.
PER_SECOND, CYCLE_MS, MOST = "pods per second", "ms per cycle", "most pods on a node"
P50, P99, LONGEST = (f"create to bound ms, {each}" for each in ("p50", "p99", "longest"))
UNPLACED = "not placed"
RATES = (PER_SECOND, CYCLE_MS, MOST, P50, P99, LONGEST, UNPLACED)
# The columns of the table of programs.
MEMORY = "memory MiB"
ALL = "all of Joulie"
OF_BARE, OF_SCHEDULER = "of the bare one's pods per second", "of kube-scheduler's CPU per pod"
P99_OF_BARE = "of the bare one's p99"


class Round(NamedTuple):
    rates: dict[str, float]
    windows: Sequence[Window]
    memory: Mapping[str, float]  # of each program
    ours: Sequence[str]  # the components of Joulie, and what started them


def a_pod(name: str, number: int) -> dict[str, Any]:
    """One in four is class performance, one in ten asks for a card. Without a grace period, a pod
    is deleted at once."""
    workload = "" if number % 4 else "performance"
    made = pod(f"{name}-{number}", workload=workload, namespace="default")
    card = {} if number % 10 else {"nvidia.com/gpu": "1"}
    resources = {"requests": {"cpu": "500m", "memory": "1Mi"} | card, "limits": card}
    made["spec"]["containers"] = [{"name": "c", "image": "none", "resources": resources}]
    made["spec"]["terminationGracePeriodSeconds"] = 0
    return made


# --- one round ----------------------------------------------------------------------------------


async def one_round(server: Running, setting: str, args: argparse.Namespace) -> Round:
    port, count = free_port(), args.warm + args.pods
    async with contextlib.AsyncExitStack() as stack:
        config = await stack.enter_async_context(configured(setting, server, args.nodes))
        await stack.enter_async_context(load(server, setting, args))
        bindings = await stack.enter_async_context(Bindings.following(server.api))
        await all_of(bindings.create(a_pod("web", each)) for each in range(count))
        async with kubelets(server), scheduling(server, config, port):
            rates = await rate(bindings, args)
            rates[CYCLE_MS] = await cycle_ms(port)
            windows = await windows_in(setting, bindings, args)
            rates |= waits(bindings, max(1, len(windows)), args)
            memory, mine = memory_mib(), ours(server) if setting in PRESETS else []
            await pods_gone(server)
    require(mine[SUPERVISOR:], (name for each in windows for name in working(each)))
    return Round(rates, windows, memory, mine)


@contextlib.asynccontextmanager
async def load(
    server: Running, setting: str, args: argparse.Namespace
) -> AsyncGenerator[None, None]:
    """What a cluster does to Joulie beside its pods."""
    async with contextlib.AsyncExitStack() as stack:
        if setting in PRESETS:
            await stack.enter_async_context(readings(server, args.nodes, args.readings))
            await absorbed(server, args.nodes, args.readings)
        if setting == PAGED:
            topics = "decisions,cluster"
            stream = await stack.enter_async_context(open_stream(console_of(server), topics=topics))
            await stack.enter_async_context(background(_read(stream), "page"))
        yield


async def _read(stream: Any) -> None:
    while True:
        await stream.next()


def ours(server: Running) -> list[str]:
    """The supervisor's processes are the first: they may do nothing for seconds."""
    return [UP, IMPORTS, *components_of(server)]


def working(window: Window) -> list[str]:
    return [name for name, used_s in window.with_pods.items() if used_s]


async def rate(bindings: Bindings, args: argparse.Namespace) -> dict[str, float]:
    """From the last pod of the warm-up to the last of all, by when pods are seen bound."""
    await bindings.wait_for(1, PATIENCE_S)
    if args.apart:
        pin({SCHEDULER, ECHO, BARE, "extender"})
    await bindings.wait_for(args.warm, PATIENCE_S)
    began, warm = time.perf_counter(), len(bindings)
    await bindings.wait_for(args.warm + args.pods, PATIENCE_S)
    count, bound_s = len(bindings) - warm, time.perf_counter() - began
    await asyncio.sleep(args.settle)
    return {PER_SECOND: count / bound_s, MOST: float(bindings.most_on_a_node())}


async def windows_in(setting: str, bindings: Bindings, args: argparse.Namespace) -> list[Window]:
    """Without `joulie up` pods come once, for their times."""
    if setting in PRESETS:
        return [await window(bindings, each, args) for each in range(args.windows)]
    await paced(bindings, 0, args)
    return []


async def window(bindings: Bindings, number: int, args: argparse.Namespace) -> Window:
    """Every other one begins without pods, so that a drift of the machine cancels out."""
    lasts_s = args.paced / PER_S + args.settle
    without = partial(asyncio.sleep, lasts_s)
    with_pods = partial(paced, bindings, number, args)
    if number % 2:
        idle, busy = await used_during(without), await used_during(with_pods)
    else:
        busy, idle = await used_during(with_pods), await used_during(without)
    print(f"window {number + 1}: {_shown(busy)} with pods, {_shown(idle)} without", flush=True)
    return Window(busy, idle, lasts_s, args.paced)


def _shown(used: Mapping[str, float]) -> str:
    """The CPU of the busiest programs."""
    busiest = sorted(used, key=lambda name: used[name], reverse=True)[:6]
    return ", ".join(f"{name} {used[name]:.1f} s" for name in busiest)


async def paced(bindings: Bindings, window: int, args: argparse.Namespace) -> None:
    """Pods at a steady rate, until components have nothing more to do with them."""
    tasks, began = list[asyncio.Task[None]](), time.perf_counter()
    for number in range(args.paced):
        await asyncio.sleep(began + number / PER_S - time.perf_counter())
        pod = a_pod(f"paced-{window}", number)
        tasks.append(asyncio.create_task(bindings.create(pod)))
    await asyncio.gather(*tasks)
    await asyncio.sleep(began + args.paced / PER_S + args.settle - time.perf_counter())


def waits(bindings: Bindings, windows: int, args: argparse.Namespace) -> dict[str, float]:
    """Of the paced pods."""
    each = range(windows), range(args.paced)
    found = bindings.waits(f"paced-{window}-{number}" for window, number in product(*each))
    times = (found.p50, found.p99, found.longest)
    ms = {name: 1000 * each for name, each in zip((P50, P99, LONGEST), times, strict=True)}
    count = args.warm + args.pods + windows * args.paced
    return ms | {UNPLACED: float(count - len(bindings))}


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


async def compared(args: argparse.Namespace) -> list[Table]:
    found = defaultdict[str, list[Round]](list)
    async with cluster_of(args.nodes) as server:
        for number in range(args.rounds):
            for setting in args.ask:
                each = await one_round(server, setting, args)
                found[setting].append(each)
                per_s = each.rates[PER_SECOND]
                print(f"round {number + 1}, {setting}: {per_s:.0f} pods/s", flush=True)
    return tables(found)


def tables(found: Mapping[str, Sequence[Round]]) -> list[Table]:
    """The median of all rounds, and the worst."""
    rates = {
        f"{setting}{kind}": {name: pick([each.rates[name] for each in rounds]) for name in RATES}
        for setting, rounds in found.items()
        for kind, pick in (("", median), (", highest", max), (", lowest", min))
        if kind == "" or len(rounds) > 1
    }
    joulie = {setting: rounds for setting, rounds in found.items() if setting in PRESETS}
    made = [Table(title="placing", rows=rates, zero={UNPLACED})]
    made += [ratios(found)] if joulie else []
    made += [programs_of(setting, rounds) for setting, rounds in joulie.items()]
    return made


def ratios(found: Mapping[str, Sequence[Round]]) -> Table:
    """To what runs in the same round: kube-scheduler's own CPU, and a bare extender."""
    rows = defaultdict[str, dict[str, float]](dict)
    for setting in (each for each in found if each in PRESETS):
        row, rounds = rows[setting], found[setting]
        windows = windows_of(rounds)
        row[OF_SCHEDULER] = per_pod(windows, rounds[0].ours) / per_pod(windows, [SCHEDULER])
        if BARE in found:
            pairs = list(zip(found[setting], found[BARE], strict=True))
            row[OF_BARE] = median(a.rates[PER_SECOND] / b.rates[PER_SECOND] for a, b in pairs)
            row[P99_OF_BARE] = median(a.rates[P99] / b.rates[P99] for a, b in pairs)
    return Table(title="ratios", rows=rows)


def programs_of(setting: str, rounds: Sequence[Round]) -> Table:
    """With kube-scheduler, without the other programs of the cluster."""
    names = rounds[0].ours
    rows = {name: columns_of([name], rounds) for name in (*names, REPORT, SCHEDULER)}
    # A report comes by the clock and takes a share of a core, whether pods come or not.
    rest = columns_of([*names, REPORT], rounds)
    rows[ALL] = columns_of(names, rounds) | {name: rest[name] for name in (REST, MEMORY)}
    require_cost(setting, rows[ALL])
    return Table(title=setting, rows=rows, zero={UP, IMPORTS, REPORT, CPU, ERROR}, signed={CPU})


def windows_of(rounds: Iterable[Round]) -> list[Window]:
    return [window for each in rounds for window in each.windows]


def columns_of(names: Collection[str], rounds: Sequence[Round]) -> dict[str, float]:
    memory = median(sum(each.memory[name] for name in names) for each in rounds)
    return cost_of(windows_of(rounds), names) | {MEMORY: memory}


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=1200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", type=int, default=200, help="pods that are not counted")
    parser.add_argument("--paced", type=int, default=400, help="pods of a window")
    parser.add_argument("--windows", type=int, default=4, help="of a round, at least 3")
    parser.add_argument("--readings", type=int, default=500, help="a second")
    parser.add_argument("--settle", type=float, default=6.0, help="seconds after the last pod")
    parser.add_argument(
        "--ask", nargs="*", choices=SETTINGS, default=[ALONE, BARE, SAVINGS, HEADROOM]
    )
    parser.add_argument(
        "--apart", action="store_true", help="a core for kube-scheduler and extender"
    )


def measured(args: argparse.Namespace) -> list[Table]:
    require_programs()
    return asyncio.run(compared(args))
