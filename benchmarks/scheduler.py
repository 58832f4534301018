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

Beside `joulie up`, readings of the nodes are published, 500 a second. A round with it begins with
a minute in which no pod is placed: its CPU is that at rest, and is subtracted afterwards. Then pods
exist before kube-scheduler starts, so that only kube-scheduler limits the rate: this gives pods per
second, CPU per pod, memory, and the most pods on one node. A cycle is the time in which
kube-scheduler chooses the node of one pod, including the extender's answers. Then pods are created
at a steady rate below that: this gives the times from creation to binding. A pod that is not placed
is counted, with the time that it has waited.

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
from collections.abc import AsyncGenerator, Mapping, Sequence
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
    cluster_of,
    components_of,
    configured,
    console_of,
    kubelets,
    pods_gone,
    readings,
    require_programs,
)
from process_usage import IMPORTS, cpu_s, memory_mib, pin, require
from report import Table

from console_kit import open_stream
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.presets import HEADROOM, SAVINGS
from joulie_bus.runtime.tasks import background
from kube_builders import pod
from kube_real import Running, all_of
from kube_scheduled import scheduling

SMALLEST = {
    "nodes": 20,
    "pods": 20,
    "rounds": 1,
    "warm": 4,
    "paced": 10,
    "rest": 4.0,
    "ask": [BARE, SAVINGS, PAGED],
}
PER_S = 50  # the rate of the paced pods
PATIENCE_S = 120.0  # after which a pod counts as not placed
SHORTEST_S = 8.0  # for which CPU is counted
CYCLE = "scheduler_scheduling_algorithm_duration_seconds"
UP, SCHEDULER = "up", "kube-scheduler"
OTHERS = (SCHEDULER, "kube-apiserver", "etcd", ECHO, BARE)
# The figures of a round.
PER_SECOND, CYCLE_MS, MOST = "pods per second", "ms per cycle", "most pods on a node"
P50, P99, LONGEST = (f"create to bound ms, {each}" for each in ("p50", "p99", "longest"))
UNPLACED = "not placed"
RATES = (PER_SECOND, CYCLE_MS, MOST, P50, P99, LONGEST, UNPLACED)
# The columns of the table of programs.
CPU, REST, MEMORY = "CPU ms per pod", "at rest, % of a core", "memory MiB"
ALL = "all of Joulie"
OF_BARE, OF_SCHEDULER = "of the bare one's pods per second", "of kube-scheduler's CPU per pod"
P99_OF_BARE = "of the bare one's p99"


class Round(NamedTuple):
    rates: dict[str, float]
    programs: dict[str, dict[str, float]]  # the columns of each


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
        rest = await at_rest(server, args) if setting in PRESETS else {}
        bindings = await stack.enter_async_context(Bindings.following(server.api))
        await all_of(bindings.create(a_pod("web", each)) for each in range(count))
        async with kubelets(server), scheduling(server, config, port):
            rates, programs = await rate(server, bindings, rest, args)
            rates[CYCLE_MS] = await cycle_ms(port)
            rates |= await waits(bindings, args)
            await pods_gone(server)
    return Round(rates, programs)


@contextlib.asynccontextmanager
async def load(
    server: Running, setting: str, args: argparse.Namespace
) -> AsyncGenerator[None, None]:
    """What a cluster does to Joulie beside its pods."""
    async with contextlib.AsyncExitStack() as stack:
        if setting in PRESETS:
            await stack.enter_async_context(readings(server, args.nodes, args.readings))
        if setting == PAGED:
            topics = "decisions,cluster"
            stream = await stack.enter_async_context(open_stream(console_of(server), topics=topics))
            await stack.enter_async_context(background(_read(stream), "page"))
        yield


async def _read(stream: Any) -> None:
    while True:
        await stream.next()


async def at_rest(server: Running, args: argparse.Namespace) -> dict[str, float]:
    """The CPU of each component, in seconds per second."""
    await asyncio.sleep(min(args.rest, 10.0))  # until the first readings are folded
    began, used = time.perf_counter(), cpu_s()
    await asyncio.sleep(args.rest)
    took, then = time.perf_counter() - began, cpu_s()
    return {name: (then[name] - used[name]) / took for name in ours(server)}


def ours(server: Running) -> list[str]:
    """The supervisor is the first: it may do nothing for seconds."""
    return [UP, *components_of(server)]


async def rate(
    server: Running, bindings: Bindings, rest: Mapping[str, float], args: argparse.Namespace
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """From the last pod of the warm-up to the last of all, by when pods are seen bound."""
    await bindings.wait_for(1, PATIENCE_S)
    if args.apart:
        pin({SCHEDULER, ECHO, BARE, "extender"})
    await bindings.wait_for(args.warm, PATIENCE_S)
    began, used, warm = time.perf_counter(), cpu_s(), len(bindings)
    await bindings.wait_for(args.warm + args.pods, PATIENCE_S)
    bound_s, count = time.perf_counter() - began, len(bindings) - warm
    await asyncio.sleep(max(0.0, SHORTEST_S - bound_s))  # some components work once in seconds
    took, then, memory = time.perf_counter() - began, cpu_s(), memory_mib()
    names = ours(server) if rest else []
    require(names[1:], (name for name in then if then[name] > used[name]))
    programs = {
        name: {
            CPU: (then[name] - used[name] - took * rest.get(name, 0.0)) * 1000 / count,
            MEMORY: memory[name],
        }
        for name in (*names, *OTHERS)
        if name in then
    }
    for name in names:
        programs[name][REST] = rest[name] * 100
    if rest:
        programs[UP][MEMORY] += memory[IMPORTS]
    rates = {PER_SECOND: count / bound_s, MOST: float(bindings.most_on_a_node())}
    return rates, programs


async def waits(bindings: Bindings, args: argparse.Namespace) -> dict[str, float]:
    tasks, began = list[asyncio.Task[None]](), time.perf_counter()
    for number in range(args.paced):
        await asyncio.sleep(began + number / PER_S - time.perf_counter())
        tasks.append(asyncio.create_task(bindings.create(a_pod("paced", number))))
    await asyncio.gather(*tasks)
    count = args.warm + args.pods + args.paced
    await bindings.wait_for(count, PATIENCE_S)
    found = bindings.waits(f"paced-{number}" for number in range(args.paced))
    times = (found.p50, found.p99, found.longest)
    ms = {name: 1000 * each for name, each in zip((P50, P99, LONGEST), times, strict=True)}
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
        row = rows[setting]
        row[OF_SCHEDULER] = median(
            joulies(each)[CPU] / each.programs[SCHEDULER][CPU] for each in found[setting]
        )
        if BARE in found:
            pairs = list(zip(found[setting], found[BARE], strict=True))
            row[OF_BARE] = median(a.rates[PER_SECOND] / b.rates[PER_SECOND] for a, b in pairs)
            row[P99_OF_BARE] = median(a.rates[P99] / b.rates[P99] for a, b in pairs)
    return Table(title="ratios", rows=rows)


def joulies(each: Round) -> dict[str, float]:
    """All components of Joulie together."""
    mine = [columns for columns in each.programs.values() if REST in columns]
    return {name: sum(columns[name] for columns in mine) for name in (CPU, REST, MEMORY)}


def programs_of(setting: str, rounds: Sequence[Round]) -> Table:
    """Without the programs of the cluster, whose CPU at rest is not measured."""
    rows = {
        name: {
            what: median(each.programs[name][what] for each in rounds)
            for what in (CPU, REST, MEMORY)
        }
        for name, columns in rounds[0].programs.items()
        if REST in columns
    }
    together = [joulies(each) for each in rounds]
    rows[ALL] = {what: median(each[what] for each in together) for what in (CPU, REST, MEMORY)}
    return Table(title=setting, rows=rows, zero={UP})


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=1200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", type=int, default=200, help="pods that are not counted")
    parser.add_argument("--paced", type=int, default=300, help="pods at a steady rate")
    parser.add_argument("--readings", type=int, default=500, help="a second")
    parser.add_argument("--rest", type=float, default=60.0, help="seconds without pods")
    parser.add_argument(
        "--ask", nargs="*", choices=SETTINGS, default=[ALONE, BARE, SAVINGS, HEADROOM]
    )
    parser.add_argument(
        "--apart", action="store_true", help="a core for kube-scheduler and extender"
    )


def measured(args: argparse.Namespace) -> list[Table]:
    require_programs()
    return asyncio.run(compared(args))
