"""Pods that might exist: classes, sizes and durations, from one seeded stream."""

import random
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """A kind of job: how often, how big, how long, how hard it works."""

    share: float
    name: str
    annotation: str  # the workload class it declares; empty: it says nothing
    cores: tuple[float, ...]
    memory_gib: tuple[int, ...]
    gpus: tuple[int, ...]
    seconds: tuple[float, float]
    utilisation: tuple[float, float]


KINDS = (
    Kind(0.40, "web", "", (0.5, 1, 2, 4), (1, 2, 4), (0,), (20, 90), (0.2, 0.7)),
    Kind(0.20, "batch", "standard", (4, 8, 16, 32), (8, 16, 32), (0,), (30, 120), (0.5, 0.95)),
    Kind(0.15, "solver", "performance", (16, 32, 64), (32, 64, 128), (0,), (30, 120), (0.6, 0.95)),
    Kind(0.15, "train", "performance", (8, 16), (64, 128), (1, 2, 4, 8), (40, 150), (0.6, 0.95)),
    Kind(0.10, "infer", "", (2, 4, 8), (16, 32), (1,), (20, 90), (0.3, 0.7)),
)


class Job(NamedTuple):
    uid: str
    name: str
    namespace: str
    annotation: str
    cores: float
    memory_gib: int
    gpus: int
    seconds: float
    utilisation: float

    def manifest(self) -> dict[str, Any]:
        """The Pod as kube-scheduler would send it."""
        requests = {"cpu": f"{int(self.cores * 1000)}m", "memory": f"{self.memory_gib}Gi"}
        gpus = {"nvidia.com/gpu": str(self.gpus)} if self.gpus else {}
        annotations = {"joulie.io/workload-class": self.annotation} if self.annotation else {}
        return {
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "uid": self.uid,
                "annotations": annotations,
            },
            "spec": {
                "containers": [
                    {"name": "main", "resources": {"requests": requests | gpus, "limits": gpus}}
                ],
                "schedulerName": "default-scheduler",
            },
            "status": {"phase": "Pending"},
        }


class Workload:
    """The same seed gives the same jobs; `run` tells one run's pods from another's."""

    def __init__(self, seed: int, run: str) -> None:
        self._random = random.Random(seed)
        self._run = run
        self._count = 0

    def next(self) -> Job:
        draw = self._random
        kind = draw.choices(KINDS, [kind.share for kind in KINDS])[0]
        self._count += 1
        return Job(
            uid=f"{self._run}-{self._count:08d}",
            name=f"{kind.name}-{self._run}-{self._count}",
            namespace=draw.choice(("team-a", "team-b", "team-c")),
            annotation=kind.annotation,
            cores=draw.choice(kind.cores),
            memory_gib=draw.choice(kind.memory_gib),
            gpus=draw.choice(kind.gpus),
            seconds=draw.uniform(*kind.seconds),
            utilisation=draw.uniform(*kind.utilisation),
        )

    def pause(self, per_second: float) -> float:
        """Seconds until the next job comes."""
        return self._random.expovariate(per_second)
