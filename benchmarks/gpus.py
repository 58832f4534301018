"""Measures the cost of the GPU rules beside the energy rules, at 40,000 cards on 5,000 nodes.

    make bench, or: .venv/bin/python benchmarks/gpus.py [--nodes 5000] [--json FILE]

Prints medians and ratios. Ratios are comparable between machines, absolute times are not. Each
request is for another pod. The first request on a snapshot also pays for what it shares with later
ones.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, cycle
from pathlib import Path

import numpy as np

import joulie_migrations
from joulie_bus.events import Duty, Fact, GpuAsk, GpuSeen, PodAsk, PodPending
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import background
from joulie_bus.testing import (
    CLUSTER,
    NOON,
    SECOND,
    connected,
    hardware,
    node_seen,
    producer,
    running_broker,
    until,
)
from joulie_extender.binding.bind import Bindings
from joulie_extender.binding.claim_log import ClaimLog
from joulie_extender.binding.simulated_binder import SimulatedBinder
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.decide import (
    DecisionOptions,
    filter_decision,
    preempt_decision,
    prioritize_decision,
)
from joulie_extender.gpu.card_choice import choose_cards
from joulie_extender.gpu.fit import GpuWeights
from joulie_extender.protocol.candidates import Names
from joulie_extender.protocol.kube_scheduler import Binding
from joulie_projections.decision_log.heads import Signer
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.state.cards import CardState, Claim
from joulie_projections.state.state import NodeState, Sample
from joulie_projections.store import database
from joulie_projections.twin.card_columns import Cards
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.view.view import View

RUNS, PER_NODE = 31, 8
MODELS = ("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "Tesla-T4")
WEIGHTS = Weights()


def median_s(call: Callable[[], object], runs: int = RUNS) -> float:
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def cards_of(nodes: list[str]) -> dict[str, CardState]:
    """Cards in linked groups of four; two thirds of them are claimed."""
    draw = np.random.default_rng(1)
    busy = draw.random(len(nodes) * PER_NODE) < 2 / 3
    made = {}
    for at, is_busy in enumerate(busy.tolist()):
        name, number = nodes[at // PER_NODE], at % PER_NODE
        claim = Claim(namespace="t", name="p", node=name, mb=40_960, expires_at=0, confirmed=True)
        made[f"GPU-{at:05d}"] = CardState(
            at=NOON,
            node=name,
            model=MODELS[(at // PER_NODE) % len(MODELS)],
            total_mb=40_960,
            healthy=True,
            nvlink_group=str(number // 4),
            claims={f"pod-{at}": claim} if is_busy else {},
        )
    return made


def cluster(size: int) -> tuple[TwinColumns, dict[str, CardState]]:
    names = [f"node-{number:05d}.example.internal" for number in range(size)]
    nodes = {
        name: NodeState(
            ordinal=at,
            at=NOON,
            present=True,
            hardware=hardware(name, gpus=PER_NODE),
            profile="eco" if at % 3 else "performance",
            samples=(Sample(NOON, 900_000 + at),),
        )
        for at, name in enumerate(names)
    }
    twin_columns, cards = TwinColumns.of(nodes, NOON), cards_of(names)
    return twin_columns.with_cards(Cards.of(cards, twin_columns.rows)), cards


def pods() -> Iterator[PodAsk]:
    asks = cycle(
        [
            GpuAsk(model="NVIDIA-A100-SXM4-40GB", vram_mb=30_000),
            GpuAsk(model="H100", topology="nvlink"),
            GpuAsk(vram_mb=10_000),
        ]
    )
    for number, ask in zip(count(), asks, strict=False):
        yield PodAsk(
            uid=f"new-{number}",
            namespace="t",
            name="p",
            workload="performance",
            cpu_milli=8000,
            gpu_milli=2000,
            gpu_cards=2,
            gpu=ask,
        )


def changed(twin_columns: TwinColumns, cards: dict[str, CardState], number: int) -> TwinColumns:
    uuid = f"GPU-{number:05d}"
    return twin_columns.with_cards(
        twin_columns.cards.following({uuid: cards[uuid]}, twin_columns.rows)
    )


def measure(size: int) -> dict[str, float]:
    twin_columns, cards = cluster(size)
    found = {"cards": float(len(cards))}
    numbers = count()
    found["a card that changed, on the columns, ms"] = (
        median_s(lambda: changed(twin_columns, cards, next(numbers))) * 1000
    )
    shuffled = np.random.default_rng(2).permutation(list(twin_columns.rows)).tolist()
    for asked in (500, 5000):
        if asked <= size:
            found |= verbs(twin_columns, cards, shuffled[:asked])
    found |= picks(twin_columns, shuffled[:200])
    found |= asyncio.run(bindings(size))
    return found


def verbs(
    twin_columns: TwinColumns, cards: dict[str, CardState], asked: list[str]
) -> dict[str, float]:
    names = Names.of(asked)
    rows, candidates = names.rows_on(twin_columns), names.candidates_on(twin_columns)
    wanting, numbers = pods(), count()

    def snapshot(is_fresh: bool) -> DecisionContext:
        """Each fact gives a new snapshot; cards change much less often."""
        there = changed(twin_columns, cards, next(numbers)) if is_fresh else twin_columns
        return DecisionContext(there, 1, 0, NOON + 10 * SECOND)

    def filtered(duty: Duty, at: DecisionContext) -> object:
        return filter_decision(
            next(wanting), candidates, rows, at, WEIGHTS, DecisionOptions(duty=duty)
        )

    def scored(duty: Duty, at: DecisionContext) -> object:
        return prioritize_decision(next(wanting), candidates, asked, at, WEIGHTS, duty)

    def preempted(duty: Duty, at: DecisionContext) -> object:
        sent = DecisionOptions(duty=duty, victims=("pod-1", "pod-2"))
        return preempt_decision(next(wanting), candidates, rows, at, WEIGHTS, sent)

    found: dict[str, float] = {}
    for name, verb in (("filter", filtered), ("prioritize", scored), ("preempt", preempted)):
        found |= compared(f"{name} {len(asked)}", verb, snapshot)
    return found


def compared(
    name: str,
    verb: Callable[[Duty, DecisionContext], object],
    snapshot: Callable[[bool], DecisionContext],
) -> dict[str, float]:
    """A verb under /energy, under /gpu and without a prefix, warm and on a new snapshot."""
    warm = snapshot(False)
    energy = median_s(partial(verb, "energy", warm))
    gpu = median_s(partial(verb, "gpu", warm))
    both = median_s(partial(verb, "all", warm))
    first = [timed(verb, "gpu", snapshot(True)) for _ in range(RUNS)]
    anew = [timed(verb, "energy", snapshot(True)) for _ in range(RUNS)]
    return {
        f"/energy/{name}, ms": energy * 1000,
        f"/gpu/{name}, ms": gpu * 1000,
        f"/energy/{name}, the first on a snapshot, ms": statistics.median(anew) * 1000,
        f"/gpu/{name}, the first on a snapshot, ms": statistics.median(first) * 1000,
        f"/gpu / /energy, {name}": gpu / energy,
        f"both / /energy, {name}": both / energy,
    }


def timed(
    verb: Callable[[Duty, DecisionContext], object], duty: Duty, at: DecisionContext
) -> float:
    started = time.perf_counter()
    verb(duty, at)
    return time.perf_counter() - started


def picks(twin_columns: TwinColumns, nodes: list[str]) -> dict[str, float]:
    wanting, names = pods(), cycle(nodes)
    call = median_s(lambda: choose_cards(next(wanting), next(names), twin_columns, GpuWeights()))
    return {"cards of a node picked, ms": call * 1000}


async def bindings(size: int, pods: int = 200) -> dict[str, float]:
    """With a real broker and a projector; only the API server is missing."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        path = place / "joulie.db"
        migrator = database.migrator(path)
        joulie_migrations.upgrade(migrator)
        migrator.dispose()
        writer, reader = database.writer(path), database.reader(path)
        async with (
            running_broker(place / "broker") as broker,
            connected(broker) as connection,
            JetStreamLog.over(connection) as bus,
            background(
                Projector(
                    bus, CLUSTER, writer, Signer.of(place / "key"), ProjectorSettings()
                ).run(),
                "projector",
            ),
            View.open(bus, reader, CLUSTER) as view,
        ):
            found = await timed_bindings(bus, view, size, pods)
        writer.dispose()
        reader.dispose()
    return found


async def timed_bindings(bus: JetStreamLog, view: View, size: int, pods: int) -> dict[str, float]:
    names = [f"node-{number:05d}" for number in range(size)]
    says = producer("bench")
    facts: list[Fact] = [node_seen(name, gpus=PER_NODE) for name in names]
    facts += [
        GpuSeen(uuid=f"{name}-{at}", node=name, model=MODELS[0], total_mb=40_960)
        for name in names
        for at in range(PER_NODE)
    ]
    ask = GpuAsk(model="A100", vram_mb=30_000)
    facts += [
        PodPending(pod=PodAsk(uid=f"u{at}", namespace="t", name="p", gpu_cards=1, gpu=ask))
        for at in range(2 * pods)
    ]
    for at in range(0, len(facts), 1000):
        await bus.publish([says.stamp(fact) for fact in facts[at : at + 1000]])
    await until(lambda: len(view.cluster_state.pods) == 2 * pods, 120)
    claim_log = ClaimLog(bus, CLUSTER, view, "r0")
    binds = Bindings(view, claim_log, SimulatedBinder(view), WEIGHTS, time.time_ns)
    asked = [
        Binding(pod_name="p", namespace="t", pod_uid=f"u{at}", node=names[at * 7 % size])
        for at in range(2 * pods)
    ]
    times = []
    for each in asked[:pods]:
        started = time.perf_counter()
        decided = await binds.bind(each)
        times.append(time.perf_counter() - started)
        assert decided.outcome == "bound", decided
    started = time.perf_counter()
    many = await asyncio.gather(*(binds.bind(each) for each in asked[pods:]))
    took = time.perf_counter() - started
    bound = sum(decided.outcome == "bound" for decided in many)
    return {
        "/gpu/bind, one after the other, ms": statistics.median(times) * 1000,
        f"/gpu/bind, {pods} at once: bound": float(bound),
        f"/gpu/bind, {pods} at once, pods/s": bound / took,
    }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--nodes", type=int, default=5000)
    options.add_argument("--json", type=Path, help="also write the figures to this file")
    args = options.parse_args()
    found = measure(args.nodes)
    print(f"{args.nodes} nodes, {args.nodes * PER_NODE} cards, median of {RUNS} runs")
    for name, value in found.items():
        print(f"  {name:<60}{value:>12,.3f}")
    if args.json:
        args.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
