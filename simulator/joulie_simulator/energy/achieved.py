"""What the pods of a simulation got: their work and their waits.

Work is counted as `joulie simulate energy` counts it: the dynamic energy of the job under ideal
conditions. It does not depend on the node, on caps or on the time that the job took.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from joulie_simulator.energy.fleet import CARD_COEFFICIENT, CARD_PEAK_W, WORK_W_PER_CORE
from joulie_simulator.workload.workload import Job

HOUR_S = 3600.0
W_PER_KW = 1000.0


class WorkDone(NamedTuple):
    core_s: float = 0.0
    card_s: float = 0.0
    joules: float = 0.0

    def plus(self, job: Job, seconds: float) -> "WorkDone":
        """With so many seconds of the job, at full speed."""
        return WorkDone(
            self.core_s + job.cores * seconds,
            self.card_s + job.gpus * seconds,
            self.joules + work_w(job) * seconds,
        )


class Pods(NamedTuple):
    turned_away: int  # never created, because too many waited
    waiting: int
    running: int
    finished: int


class Achieved(NamedTuple):
    """Times are simulated; `work_kwh` is the ideal dynamic energy of the work that was done."""

    simulated_s: float
    pods: Pods
    work_kwh: float
    core_hours: float
    card_hours: float
    wait_p50_s: float
    wait_p99_s: float

    @classmethod
    def of(
        cls, simulated_s: float, pods: Pods, done: WorkDone, waits_s: Sequence[float]
    ) -> "Achieved":
        return cls(
            simulated_s,
            pods,
            done.joules / (HOUR_S * W_PER_KW),
            done.core_s / HOUR_S,
            done.card_s / HOUR_S,
            *(_quantile(waits_s, level) for level in (0.5, 0.99)),
        )

    def as_json(self) -> dict[str, Any]:
        pods = self.pods
        return {
            "simulated_s": self.simulated_s,
            "pods": {
                "turned_away": pods.turned_away,
                "waiting": pods.waiting,
                "running": pods.running,
                "finished": pods.finished,
            },
            "work_kwh": self.work_kwh,
            "core_hours": self.core_hours,
            "card_hours": self.card_hours,
            "wait_p50_s": self.wait_p50_s,
            "wait_p99_s": self.wait_p99_s,
        }


def work_w(job: Job) -> float:
    """Useful work per second of the job, in watts."""
    cards = job.gpus * CARD_PEAK_W * CARD_COEFFICIENT[job.annotation == "performance"]
    return (job.cores * WORK_W_PER_CORE + cards) * job.utilisation


def _quantile(values: Sequence[float], level: float) -> float:
    return float(np.quantile(values, level)) if values else 0.0
