"""What the GPU rules cost, beside the energy verbs, at 40,000 cards on 5,000 nodes.

    make bench, or: .venv/bin/python benchmarks/gpus.py [--nodes 5000] [--json FILE]

Prints medians and ratios; ratios hold on other machines, absolute times do not. Each question is
about another pod; the first one after a card has changed pays for all that are like it.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import count, cycle
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from joulie_bus.events import Duty, GpuAsk, PodAsk
from joulie_bus.testing import CLUSTER, NOON, SECOND, VirtualClock, hardware, memory_log
from joulie_extender.candidates import Names
from joulie_extender.decide import Sent, filter_decision, preempt_decision, prioritize_decision
from joulie_extender.gpu_pick import pick
from joulie_extender.moment import Moment
from joulie_extender.scoring import Weights
from joulie_projections.board import Board
from joulie_projections.card_columns import Cards
from joulie_projections.cards import CardState, Claim
from joulie_projections.world import NodeState, Sample

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
    """Two thirds of them claimed, in groups of four that are linked."""
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


def cluster(size: int) -> tuple[Board, dict[str, CardState]]:
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
    board, cards = Board.of(nodes, NOON), cards_of(names)
    return board.holding(Cards.of(cards, board.rows)), cards


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


def changed(board: Board, cards: dict[str, CardState], number: int) -> Board:
    uuid = f"GPU-{number:05d}"
    return board.holding(board.cards.following({uuid: cards[uuid]}, board.rows))


def measure(size: int) -> dict[str, float]:
    board, cards = cluster(size)
    found = {"cards": float(len(cards))}
    numbers = count()
    found["a card that changed, on the columns, ms"] = (
        median_s(lambda: changed(board, cards, next(numbers))) * 1000
    )
    shuffled = np.random.default_rng(2).permutation(list(board.rows)).tolist()
    for asked in (500, 5000):
        if asked <= size:
            found |= verbs(board, cards, shuffled[:asked])
    found |= picks(board, shuffled[:200])
    found |= asyncio.run(claims())
    return found


def verbs(board: Board, cards: dict[str, CardState], asked: list[str]) -> dict[str, float]:
    names = Names.of(asked)
    rows, candidates = names.rows_on(board), names.candidates_on(board)
    wanting, numbers = pods(), count()
    found = {}

    def moment(is_fresh: bool) -> Moment:
        """A board is another one after each fact; cards change much more seldom."""
        there = changed(board, cards, next(numbers)) if is_fresh else board
        return Moment(there, 1, 0, NOON + 10 * SECOND)

    def filtered(duty: Duty, at: Moment) -> object:
        return filter_decision(next(wanting), candidates, rows, at, WEIGHTS, Sent(duty=duty))

    def scored(duty: Duty, at: Moment) -> object:
        return prioritize_decision(next(wanting), candidates, asked, at, WEIGHTS, duty)

    def preempted(duty: Duty, at: Moment) -> object:
        sent = Sent(duty=duty, victims=("pod-1", "pod-2"))
        return preempt_decision(next(wanting), candidates, rows, at, WEIGHTS, sent)

    for name, verb in (("filter", filtered), ("prioritize", scored), ("preempt", preempted)):
        warm = moment(False)
        energy = median_s(lambda v=verb, m=warm: v("energy", m))
        gpu = median_s(lambda v=verb, m=warm: v("gpu", m))
        both = median_s(lambda v=verb, m=warm: v("all", m))
        first = [timed(verb, moment(True)) for _ in range(RUNS)]
        found[f"/energy/{name} {len(asked)}, ms"] = energy * 1000
        found[f"/gpu/{name} {len(asked)}, ms"] = gpu * 1000
        found[f"/gpu/{name} {len(asked)}, the first after a change, ms"] = (
            statistics.median(first) * 1000
        )
        found[f"/gpu / /energy, {name} {len(asked)}"] = gpu / energy
        found[f"both / /energy, {name} {len(asked)}"] = both / energy
    return found


def timed(verb: Callable[[Duty, Moment], object], at: Moment) -> float:
    started = time.perf_counter()
    verb("gpu", at)
    return time.perf_counter() - started


def picks(board: Board, nodes: list[str]) -> dict[str, float]:
    wanting, names = pods(), cycle(nodes)
    call = median_s(lambda: pick(next(wanting), next(names), board, ()))
    return {"cards of a node picked, ms": call * 1000}


async def claims() -> dict[str, float]:
    """What the claim itself costs without a broker: envelopes and comparing."""
    from joulie_bus.producer import Producer
    from joulie_bus.subjects import Stream
    from joulie_bus.testing import claim

    log, says = memory_log(), Producer("bench", CLUSTER, VirtualClock())
    times = []
    for number in range(500):
        started = time.perf_counter()
        message = says.stamp(replace(claim(f"g{number}", "p"), expires_s=90))
        await log.append(Stream.CLAIM, [message], {message.subject: 0})
        times.append(time.perf_counter() - started)
    return {"a claim in a log in memory, ms": statistics.median(times) * 1000}


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
