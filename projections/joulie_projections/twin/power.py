"""The power model: rated power of nodes, modelled power of pods, marginal power of one pod.

The functions take single numbers or columns and give the same bits for both.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_bus.events import PodAsk
from joulie_projections.pods.load import DEFAULT_CPU_MILLI, Load

Column = npt.NDArray[np.float64]

MAX_MEMORY_FACTOR = 1.3  # the maximum that memory multiplies the power of the cores by


class Coefficients(NamedTuple):
    """The share of rated power that a pod draws of its request."""

    cpu: float = 0.7
    gpu_standard: float = 0.65
    gpu_performance: float = 0.85
    memory_factor: bool = True


class Rated(NamedTuple):
    """Rated power of nodes, one row per node; 0 for unknown hardware."""

    cores: Column  # never 0
    cpu_max_w: Column
    gpus: Column
    gpu_max_w: Column

    @classmethod
    def of(
        cls,
        cores: Column,
        cpu_max_w: Column,
        gpus: Column,
        gpu_max_w: Column,
        known: npt.NDArray[np.bool_],
    ) -> "Rated":
        cpu, gpu = np.where(known, cpu_max_w, 0.0), np.where(known, gpu_max_w, 0.0)
        return cls(np.where(cores > 0, cores, 1.0), cpu, gpus, gpu)


def cores_of(pod: PodAsk) -> float:
    return (pod.cpu_milli or DEFAULT_CPU_MILLI[pod.workload]) / 1000


def memory_factor(pod: PodAsk, coefficients: Coefficients) -> float:
    if not coefficients.memory_factor:
        return 1.0
    return min(1.3, 1 + 0.01 * (pod.memory_bytes / 2**30))


def marginal_w(pod: PodAsk, rated: Rated, coefficients: Coefficients) -> Column:
    """The additional power of this pod on each node; 0 for unknown hardware."""
    cpu_share = np.minimum(1.0, cores_of(pod) / rated.cores)
    cpu = coefficients.cpu * cpu_share * rated.cpu_max_w * memory_factor(pod, coefficients)
    if not pod.gpu_milli:
        return cpu
    gpu_coefficient = (
        coefficients.gpu_performance if pod.workload == "performance" else coefficients.gpu_standard
    )
    gpu = gpu_coefficient * np.minimum(pod.gpu_milli / 1000, rated.gpus) * rated.gpu_max_w
    return cpu + gpu


class LoadWatts(NamedTuple):
    """The power of some pods on nodes if every coefficient were 1, in columns."""

    cpu: Column
    warm_cpu: Column
    gpu_standard: Column
    gpu_performance: Column


class NodeWatts(NamedTuple):
    """`LoadWatts` of one node."""

    cpu: float
    warm_cpu: float
    gpu_standard: float
    gpu_performance: float


def load_w(load: Load, cores: float, cpu_max_w: float, gpus: float, gpu_max_w: float) -> NodeWatts:
    """The power of a load on a node, capped at the node's rated power."""
    whole = (cores or 1.0) * 1000
    performance = min(load.gpu_performance_milli / 1000, gpus)
    standard = min(load.gpu_standard_milli / 1000, gpus - performance)
    return NodeWatts(
        min(1.0, load.cpu_milli / whole) * cpu_max_w,
        min(MAX_MEMORY_FACTOR, load.warm_cpu_micro / (whole * 1000)) * cpu_max_w,
        standard * gpu_max_w,
        performance * gpu_max_w,
    )


def modelled_w(watts: LoadWatts, coefficients: Coefficients) -> Column:
    """The modelled power, by the same coefficients as `marginal_w`."""
    cpu = watts.warm_cpu if coefficients.memory_factor else watts.cpu
    return (
        coefficients.cpu * cpu
        + coefficients.gpu_standard * watts.gpu_standard
        + coefficients.gpu_performance * watts.gpu_performance
    )
