"""Watts: what a node may draw, and what one more pod would add to it.

Works on single numbers and on whole columns alike; the arithmetic is the same to the last bit.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_bus.events import PodAsk

Column = npt.NDArray[np.float64]

UNKNOWN_GPU_W = 350.0
UNKNOWN_AMD_GPU_W = 400.0
LEAST_CPU_CORES = {"performance": 0.5, "standard": 0.25}  # of a pod that asks for no CPU


class Coefficients(NamedTuple):
    """How much of its rated power a pod really draws from what it asked for."""

    cpu: float = 0.7
    gpu_standard: float = 0.65
    gpu_performance: float = 0.85
    memory_factor: bool = True


class Rated(NamedTuple):
    """What the nodes could draw, flat out; columns, one row per node."""

    cores: Column
    cpu_max_w: Column
    gpus: Column
    gpu_max_w: Column
    known: npt.NDArray[np.bool_]


def guessed_cpu_max_w(cores: float) -> float:
    return max(150.0, cores * 3.5)


def guessed_gpu_max_w(model: str) -> float:
    return UNKNOWN_AMD_GPU_W if model.lower().startswith("amd") else UNKNOWN_GPU_W


def cores_of(pod: PodAsk) -> float:
    return pod.cpu_milli / 1000 if pod.cpu_milli else LEAST_CPU_CORES[pod.workload]


def memory_factor(pod: PodAsk, coefficients: Coefficients) -> float:
    if not coefficients.memory_factor:
        return 1.0
    return min(1.3, 1 + 0.01 * (pod.memory_bytes / 2**30))


def marginal_w(pod: PodAsk, rated: Rated, coefficients: Coefficients) -> Column:
    """The extra watts of this pod on each node; 0 where nothing is known of the hardware."""
    gpu_coefficient = (
        coefficients.gpu_performance if pod.workload == "performance" else coefficients.gpu_standard
    )
    cores = np.where(rated.cores > 0, rated.cores, 1.0)
    cpu_share = np.minimum(1.0, cores_of(pod) / cores)
    cpu = coefficients.cpu * cpu_share * rated.cpu_max_w * memory_factor(pod, coefficients)
    gpu = gpu_coefficient * np.minimum(pod.gpu_milli / 1000, rated.gpus) * rated.gpu_max_w
    return np.where(rated.known, cpu + gpu, 0.0)
