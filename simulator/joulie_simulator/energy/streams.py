"""Job streams of a chosen load: the reference's jobs thinned, and pods of a trace's sizes."""

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from joulie_simulator.energy.fleet import CPU_NODE_CORES, GPU_NODE_CARDS
from joulie_simulator.energy.jobs import (
    BURST_SHARE,
    BURST_SIZES,
    CLASSES,
    Floats,
    Job,
    JobClass,
    drawn_of,
    rate_per_s,
)
from joulie_simulator.workload.workload import Size, Sizes, Table

MEAN_EVENTS_PER_S = (0.25 + 0.70 / 2) * 80 / 60  # of `rate_per_s`, over a day
MEAN_JOBS_PER_EVENT = 1 - BURST_SHARE + BURST_SHARE * (sum(BURST_SIZES) - 1) / 2
WITHOUT_CARDS = 1088 / 8152  # of openb's pods
LONGEST_S = 86_400.0  # of a pod of the trace: some services never ended in it


class Load(NamedTuple):
    """Mean demand divided by what exists."""

    cores: float  # of jobs without cards, by the cores of CPU nodes
    cards: float


def kept_shares(cpu_nodes: int, gpu_nodes: int, load: Load) -> Floats:
    """The share of each class to keep. Only training is thinned beyond the other classes."""
    jobs_per_s = MEAN_EVENTS_PER_S * MEAN_JOBS_PER_EVENT
    core_s = sum(_demand(each, each.cores) for each in CLASSES if not each.gpus)
    kept = load.cores * cpu_nodes * CPU_NODE_CORES / (jobs_per_s * core_s)
    card_s = {each.name: _demand(each, each.gpus) for each in CLASSES if each.gpus}
    wanted = load.cards * gpu_nodes * GPU_NODE_CARDS / jobs_per_s
    training = (wanted - kept * card_s["inference"]) / card_s["training"]
    return np.array([max(0.0, training) if each.name == "training" else kept for each in CLASSES])


def _demand(each: JobClass, amounts: Sequence[int]) -> float:
    """Resource seconds for one job of the whole stream."""
    return (
        each.share * sum(amounts) / len(amounts) * (each.duration_s.low + each.duration_s.high) / 2
    )


def fair_jobs(seed: int, hours: float, kept: Floats) -> list[Job]:
    """The reference's arrivals and classes, each job kept with the share of its class."""
    return list(_fair_stream(np.random.default_rng((seed, 2)), hours, kept))


def _fair_stream(draw: np.random.Generator, hours: float, kept: Floats) -> Iterator[Job]:
    weights = np.array([each.share for each in CLASSES]) * kept
    share = float(weights.sum())
    edges = np.cumsum(weights) / share
    now, end = 0.0, hours * 3600
    while True:
        now += float(draw.exponential(1 / rate_per_s(now / 3600)))
        if now >= end:
            return
        count = int(draw.integers(*BURST_SIZES)) if draw.random() < BURST_SHARE else 1
        for _ in range(int(draw.binomial(count, share))):
            kind = int(np.searchsorted(edges, draw.random(), side="right"))
            yield drawn_of(draw, now, min(kind, len(CLASSES) - 1))


def trace_jobs(
    seed: int, hours: float, cards: int, gpu_load: float, sizes: Sizes | None = None
) -> list[Job]:
    """Pods with the sizes and run times of openb, until their cards reach the load.

    The load is the mean share of all cards that the pods request inside the window. A part of a
    card counts as a whole one, and a part of a core as a whole one.
    """
    draw, sizes = random.Random(seed), sizes or OpenbShares()
    wanted, end = gpu_load * cards * hours * 3600, hours * 3600
    found: list[Job] = []
    while wanted > 0:
        job = _pod(draw, sizes, end)
        found.append(job)
        wanted -= job.gpus * min(job.duration_s, end - job.arrival_s)
    return sorted(found, key=lambda job: job.arrival_s)


class OpenbShares:
    """The quantiles of the demo, with openb's share of pods without cards: the demo has more."""

    def draw(self, chance: random.Random) -> Size:
        asks_cards = chance.random() >= WITHOUT_CARDS
        while True:
            size = Table().draw(chance)
            if bool(size.gpus) == asks_cards:
                return size


def _pod(draw: random.Random, sizes: Sizes, end_s: float) -> Job:
    size = sizes.draw(draw)
    return Job(
        arrival_s=_arrival(draw, end_s),
        kind=-1,
        cores=max(1, math.ceil(size.cores)),
        gpus=size.gpus,
        performance=size.performance,
        cpu_use=size.utilisation,
        gpu_use=size.utilisation if size.gpus else 0.0,
        duration_s=min(LONGEST_S, size.seconds),
    )


def _arrival(draw: random.Random, end_s: float) -> float:
    """A time of the window, by the reference's daily pattern."""
    most = rate_per_s(16.0)
    while True:
        at = draw.random() * end_s
        if draw.random() * most < rate_per_s(at / 3600):
            return at
