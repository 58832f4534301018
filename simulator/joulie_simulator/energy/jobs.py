"""Job streams: arrival times and requests of jobs, from a seed.

The reference stream draws from numpy's generator in the order that the published experiment of the
project's namesake does, so that its figures can be compared digit by digit.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MINUTE_S = 60.0
BURST_SHARE = 0.10  # of arrival events
BURST_SIZES = (50, 201)  # jobs of one burst: minimum, and maximum plus one
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Span(NamedTuple):
    low: float
    high: float


class JobClass(NamedTuple):
    name: str
    share: float
    cores: Sequence[int]
    gpus: Sequence[int]  # empty: the class requests none
    performance: float  # share of the class
    cpu_use: Span
    gpu_use: Span
    duration_s: Span


NO_USE = Span(0.0, 0.0)
CLASSES: tuple[JobClass, ...] = (
    JobClass("small", 0.35, (1, 2, 4, 8), (), 0.0, Span(0.3, 0.8), NO_USE, Span(60, 600)),
    JobClass("medium", 0.20, (16, 32, 48, 64), (), 0.3, Span(0.4, 0.9), NO_USE, Span(300, 3600)),
    JobClass(
        "training",
        0.25,
        (16, 32, 64),
        (1, 2, 4, 8),
        1.0,
        Span(0.3, 0.6),
        Span(0.6, 0.95),
        Span(3600, 28800),
    ),
    JobClass(
        "inference", 0.12, (4, 8, 16), (1, 2), 0.0, Span(0.3, 0.6), Span(0.3, 0.7), Span(60, 900)
    ),
    JobClass("large", 0.08, (64, 96), (), 1.0, Span(0.5, 0.95), NO_USE, Span(1800, 7200)),
)


class Job(NamedTuple):
    arrival_s: float
    kind: int  # index into CLASSES
    cores: int
    gpus: int
    performance: bool
    cpu_use: float
    gpu_use: float
    duration_s: float
    memory: float = 0.0  # bytes

    @property
    def minutes(self) -> int:
        """Number of one-minute steps that the job runs."""
        return math.ceil(self.duration_s / MINUTE_S)


def rate_per_s(hour: float) -> float:
    """Arrival events per second: fewest at 4:00, most at 16:00."""
    daily = (1 - np.cos(2 * np.pi * (hour - 4) / 24)) / 2
    return float((0.25 + 0.70 * daily) * 80 / 60)


def reference_jobs(seed: int, hours: float) -> list[Job]:
    """The jobs of the reference stream, in order of arrival."""
    return list(_reference_stream(np.random.default_rng(seed), hours))


def _reference_stream(random: np.random.Generator, hours: float) -> Iterator[Job]:
    now, end = 0.0, hours * 3600
    while True:
        now += float(random.exponential(1 / rate_per_s(now / 3600)))
        if now >= end:
            return
        count = 1
        if random.random() < BURST_SHARE:
            count = int(random.integers(*BURST_SIZES))
        for _ in range(count):
            yield _drawn(random, now)


def _drawn(random: np.random.Generator, now: float) -> Job:
    return drawn_of(random, now, _kind_at(random.random()))


def drawn_of(random: np.random.Generator, now: float, kind: int) -> Job:
    """A job of a class, given by its index."""
    drawn = CLASSES[kind]
    performance = drawn.performance == 1.0
    if 0 < drawn.performance < 1:
        performance = random.random() < drawn.performance
    cores = int(random.choice(drawn.cores))
    gpus = int(random.choice(drawn.gpus)) if drawn.gpus else 0
    cpu_use = float(random.uniform(*drawn.cpu_use))
    gpu_use = float(random.uniform(*drawn.gpu_use)) if gpus else 0.0
    duration = float(random.uniform(*drawn.duration_s))
    return Job(now, kind, cores, gpus, performance, cpu_use, gpu_use, duration)


def _kind_at(uniform: float) -> int:
    below = 0.0
    for number, each in enumerate(CLASSES):
        below += each.share
        if uniform < below:
            return number
    return len(CLASSES) - 1
