"""Simulated pods: kinds, sizes and durations from one seeded stream.

The table holds quantiles of the public trace "openb" of Alibaba's GPU clusters (2023): requests and
run times of 8,152 pods, per kind. Two inputs are assumptions: the shares of the kinds, because the
trace covers only GPU clusters, and the share of class performance, which no trace records.
"""

import bisect
import math
import random
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from joulie_simulator.hardware.physics import day_factor

LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)  # of every row of quantiles below
BURST_CHANCE = 0.02  # share of arrivals that are bursts
BURST = (10, 40)
TEAMS = ("team-a", "team-b", "team-c")

Quantiles = tuple[float, ...]


CARD_MB = 16_384  # of the cards that the pods of the trace shared


class Kind(NamedTuple):
    """A kind of job: share, sizes, run times and utilisation."""

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
    annotation: str  # the declared workload class; empty: none
    cores: float
    memory_mib: int
    gpus: int
    seconds: float  # of work, at full speed
    utilisation: float
    gpu_model: str = ""  # required model
    gpu_mb: int = 0  # memory per card; 0: not requested
    linked: bool = False  # its cards must be linked

    @property
    def milli(self) -> int:
        """Millicores."""
        return round(self.cores * 1000)

    def manifest(self) -> dict[str, Any]:
        """The Pod object, as kube-scheduler sends it."""
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
    """The request and run time of one pod of a trace."""

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
    """A source of sizes: the table, or a trace."""

    def draw(self, chance: random.Random) -> Size: ...


class Table:
    """Sizes drawn from the quantiles above."""

    def draw(self, chance: random.Random) -> Size:
        kind = chance.choices(KINDS, [kind.share for kind in KINDS])[0]
        gpu_milli = between(kind.gpu_milli, chance.random())
        return Size(
            kind=kind.name,
            performance=chance.random() < kind.performance_share,
            cores=round(between(kind.cpu_milli, chance.random()) / 1000, 1),
            memory_mib=round(between(kind.memory_mib, chance.random())),
            gpus=chance.choice(kind.gpus),
            gpu_mb=share_mb(gpu_milli),
            seconds=max(1.0, between(kind.seconds, chance.random())),
            utilisation=chance.uniform(*kind.utilisation),
        )


def share_mb(gpu_milli: float) -> int:
    """Memory for a part of a card, relative to the 16 GiB cards of the trace."""
    return round(gpu_milli / 1000 * CARD_MB) if 0 < gpu_milli < 1000 else 0


def between(quantiles: Sequence[float], at: float) -> float:
    """The value at a level from 0 to 1, with geometric interpolation between quantiles."""
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
    """The same seed gives the same jobs; `run` distinguishes the pod names of runs."""

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

    def burst_size(self) -> int:
        """The number of pods that arrive at once."""
        if self._random.random() < BURST_CHANCE:
            return self._random.randint(*BURST)
        return 1

    def pause(self, per_second: float, now_s: float) -> float:
        """Seconds until the next arrival; `per_second` counts pods, averaged over a day."""
        crowds = 1 + BURST_CHANCE * (sum(BURST) / 2 - 1)
        return self._random.expovariate(per_second / crowds * day_factor(now_s))
