"""What a node draws. Pure: load and caps in, watts out."""

import random
from collections.abc import Iterable

from joulie_simulator.shapes import Shape
from joulie_simulator.workload import Job

IDLE_SHARE = 0.25  # of the rated power, with nothing to do: servers of today idle at 20 to 30 %
NOISE = 0.01  # of the reading: a board's power sensor


def power_w(
    shape: Shape, jobs: Iterable[Job], cpu_cap_pct: int | None, gpu_cap_pct: int | None
) -> float:
    """Idle floor, plus what the jobs make of the rest, cut off at the caps."""
    cores = gpus = 0.0
    for job in jobs:
        cores += job.cores * job.utilisation
        gpus += job.gpus * job.utilisation
    cpu = _part_w(shape.cpu_tdp_w * shape.sockets, cores / shape.cores, cpu_cap_pct)
    gpu = _part_w(shape.gpu_tdp_w * shape.gpus, gpus / max(1, shape.gpus), gpu_cap_pct)
    return cpu + gpu


def _part_w(rated_w: float, load: float, cap_pct: int | None) -> float:
    drawn = rated_w * (IDLE_SHARE + (1 - IDLE_SHARE) * min(1.0, load))
    return min(drawn, rated_w * (100 if cap_pct is None else cap_pct) / 100)


def reading_mw(watts: float, draw: random.Random) -> int:
    """What the sensor says: integer milliwatts, never below zero."""
    return max(0, round(watts * (1 + draw.gauss(0, NOISE)) * 1000))
