"""Pods that might exist: kinds, sizes and durations, from one seeded stream. Pure.

The table holds quantiles of the public trace "openb" of Alibaba's GPU clusters (2023): requests and
run times of 8,152 pods, per kind. Two things are ours: the shares of the kinds, because that trace
is of GPU clusters and ours is mixed; and which pods want performance, which no trace says.
"""

import bisect
import math
import random
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from joulie_simulator.hardware.physics import day_factor

LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)  # of every row of quantiles below
BURST_CHANCE = 0.02  # an arrival in so many is a crowd
BURST = (10, 40)
TEAMS = ("team-a", "team-b", "team-c")

Quantiles = tuple[float, ...]


CARD_MB = 16_384  # of the cards that the pods of the trace shared


class Kind(NamedTuple):
    """A kind of job: how often, how big, how long, how hard it works."""

    share: float
    name: str
    performance_share: float
    cpu_milli: Quantiles
    memory_mib: Quantiles
    gpus: tuple[int, ...]
    gpu_milli: Quantiles  # of one card; below 1000 it shares one
    seconds: Quantiles
    utilisation: tuple[float, float]


NONE: Quantiles = (0.0,) * len(LEVELS)
WHOLE: Quantiles = (1000.0,) * len(LEVELS)
KINDS = (
    Kind(
        0.795,
        "cpu",
        0.3,
        (1000, 2000, 4000, 8000, 12_500, 32_000, 32_000, 32_000),
        (2048, 4096, 8192, 30_517, 51_200, 57_344, 57_344, 61_035),
        (0,),
        NONE,
        (10, 121, 149, 445, 1943, 12_836, 19_466, 28_362),
        (0.2, 0.8),
    ),
    Kind(
        0.10,
        "share",
        0.2,
        (1000, 3152, 3152, 4000, 8000, 11_908, 11_908, 11_908),
        (2048, 5600, 5600, 15_258, 30_517, 47_104, 47_104, 47_104),
        (1,),
        (50, 230, 460, 470, 810, 810, 810, 810),
        (1, 46, 107, 357, 1315, 7092, 16_521, 74_624),
        (0.3, 0.7),
    ),
    Kind(
        0.10,
        "train",
        0.5,
        (1000, 3152, 9810, 11_400, 12_000, 16_000, 18_708, 24_200),
        (1024, 5600, 24_576, 48_128, 49_152, 64_512, 77_824, 93_184),
        (1,),
        WHOLE,
        (1, 67, 167, 587, 2158, 5394, 12_089, 164_138),
        (0.5, 0.95),
    ),
    Kind(
        0.005,
        "large",
        0.7,
        (6000, 16_200, 32_000, 64_200, 88_000, 88_000, 96_000, 96_000),
        (43_008, 66_560, 132_096, 263_168, 327_680, 327_680, 640_000, 737_280),
        (2, 4, 8, 8, 8),
        WHOLE,
        (22, 40, 155, 573, 4410, 64_193, 175_089, 977_323),
        (0.6, 0.95),
    ),
)


class Job(NamedTuple):
    uid: str
    name: str
    namespace: str
    annotation: str  # the workload class it declares; empty: it says nothing
    cores: float
    memory_mib: int
    gpus: int
    seconds: float  # of work, at full speed
    utilisation: float
    gpu_model: str = ""  # that it must have
    gpu_mb: int = 0  # of every card's memory; 0: it does not say
    linked: bool = False  # its cards must be linked

    @property
    def milli(self) -> int:
        """Of cores, as Kubernetes counts them."""
        return round(self.cores * 1000)

    def manifest(self) -> dict[str, Any]:
        """The Pod as kube-scheduler would send it."""
        requests = {"cpu": f"{self.milli}m", "memory": f"{self.memory_mib}Mi"}
        gpus = {"nvidia.com/gpu": str(self.gpus)} if self.gpus else {}
        return {
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "uid": self.uid,
                "annotations": self._annotations(),
            },
            "spec": {
                "containers": [
                    {"name": "main", "resources": {"requests": requests | gpus, "limits": gpus}}
                ],
                "schedulerName": "default-scheduler",
            },
            "status": {"phase": "Pending"},
        }

    def _annotations(self) -> dict[str, str]:
        said = {
            "joulie.io/workload-class": self.annotation,
            "gpu-extender.mle.com/model": self.gpu_model,
            "gpu-extender.mle.com/vram-mb": str(self.gpu_mb) if self.gpu_mb else "",
            "joulie.io/gpu-topology": "nvlink" if self.linked else "",
        }
        return {name: value for name, value in said.items() if value}


class Size(NamedTuple):
    """What one pod of a trace asked for, and how long it ran."""

    kind: str
    performance: bool
    cores: float
    memory_mib: int
    gpus: int
    gpu_mb: int
    seconds: float
    utilisation: float
    gpu_model: str = ""


class Sizes(Protocol):
    """Where sizes come from: the table, or a trace."""

    def draw(self, draw: random.Random) -> Size: ...


class Table:
    """The quantiles above."""

    def draw(self, draw: random.Random) -> Size:
        kind = draw.choices(KINDS, [kind.share for kind in KINDS])[0]
        gpu_milli = between(kind.gpu_milli, draw.random())
        return Size(
            kind=kind.name,
            performance=draw.random() < kind.performance_share,
            cores=round(between(kind.cpu_milli, draw.random()) / 1000, 1),
            memory_mib=round(between(kind.memory_mib, draw.random())),
            gpus=draw.choice(kind.gpus),
            gpu_mb=share_mb(gpu_milli),
            seconds=max(1.0, between(kind.seconds, draw.random())),
            utilisation=draw.uniform(*kind.utilisation),
        )


def share_mb(gpu_milli: float) -> int:
    """A part of a card, as memory of the 16 GiB cards that such pods ran on."""
    return round(gpu_milli / 1000 * CARD_MB) if 0 < gpu_milli < 1000 else 0


def between(quantiles: Sequence[float], at: float) -> float:
    """The value at a level from 0 to 1; between two levels, as times and sizes go: by factors."""
    at = min(at, LEVELS[-1])
    after = bisect.bisect_right(LEVELS, at)
    if after == len(LEVELS):
        return quantiles[-1]
    low, high = quantiles[after - 1], quantiles[after]
    if low <= 0 or low == high:
        return low
    share = (at - LEVELS[after - 1]) / (LEVELS[after] - LEVELS[after - 1])
    return low * math.exp(share * math.log(high / low))


class Workload:
    """The same seed gives the same jobs; `run` tells one run's pods from another's."""

    def __init__(self, seed: int, run: str, sizes: Sizes | None = None) -> None:
        self._random = random.Random(seed)
        self._run = run
        self._count = 0
        self._sizes = sizes or Table()

    def next(self) -> Job:
        draw = self._random
        size = self._sizes.draw(draw)
        self._count += 1
        return Job(
            uid=f"{self._run}-{self._count:08d}",
            name=f"{size.kind}-{self._run}-{self._count}",
            namespace=draw.choice(TEAMS),
            annotation="performance" if size.performance else draw.choice(("", "standard")),
            cores=size.cores,
            memory_mib=size.memory_mib,
            gpus=size.gpus,
            seconds=size.seconds,
            utilisation=size.utilisation,
            gpu_model=size.gpu_model,
            gpu_mb=size.gpu_mb,
            linked=size.gpus > 1,
        )

    def crowd(self) -> int:
        """How many come at once."""
        if self._random.random() < BURST_CHANCE:
            return self._random.randint(*BURST)
        return 1

    def pause(self, per_second: float, now_s: float) -> float:
        """Seconds until somebody comes; `per_second` counts pods, on the average of a day."""
        crowds = 1 + BURST_CHANCE * (sum(BURST) / 2 - 1)
        return self._random.expovariate(per_second / crowds * day_factor(now_s))
