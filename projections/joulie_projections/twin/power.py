"""Watts: what a node may draw, what its pods draw by the model, and what one more would add.

Works on single numbers and on whole columns alike; the arithmetic is the same to the last bit.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_bus.events import PodAsk
from joulie_projections.hardware.models import vendor_of
from joulie_projections.pods.load import DEFAULT_CPU_MILLI, Load

Column = npt.NDArray[np.float64]

UNKNOWN_GPU_W = 350.0
UNKNOWN_AMD_GPU_W = 400.0
MAX_MEMORY_FACTOR = 1.3  # what memory can make of the cores that it stands beside


class Coefficients(NamedTuple):
    """How much of its rated power a pod really draws from what it asked for."""

    cpu: float = 0.7
    gpu_standard: float = 0.65
    gpu_performance: float = 0.85
    memory_factor: bool = True


class Rated(NamedTuple):
    """What the nodes could draw, flat out; columns, one row per node. Of the unknown: nothing."""

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


def guessed_cpu_max_w(cores: float) -> float:
    return max(150.0, cores * 3.5)


def guessed_gpu_max_w(model: str, vendor: str = "") -> float:
    is_amd = vendor_of(vendor, model) == "amd"
    return UNKNOWN_AMD_GPU_W if is_amd else UNKNOWN_GPU_W


def cores_of(pod: PodAsk) -> float:
    return (pod.cpu_milli or DEFAULT_CPU_MILLI[pod.workload]) / 1000


def memory_factor(pod: PodAsk, coefficients: Coefficients) -> float:
    if not coefficients.memory_factor:
        return 1.0
    return min(1.3, 1 + 0.01 * (pod.memory_bytes / 2**30))


def marginal_w(pod: PodAsk, rated: Rated, coefficients: Coefficients) -> Column:
    """The extra watts of this pod on each node; 0 where nothing is known of the hardware."""
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
    """What some pods would draw on a node if every coefficient were 1; columns or numbers."""

    cpu: Column
    warm_cpu: Column
    gpu_standard: Column
    gpu_performance: Column


class NodeWatts(NamedTuple):
    cpu: float
    warm_cpu: float
    gpu_standard: float
    gpu_performance: float


def load_w(load: Load, cores: float, cpu_max_w: float, gpus: float, gpu_max_w: float) -> NodeWatts:
    """Together no more than the node can: two pods of all its cores draw what one does."""
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
    """What these pods draw by the same model that says what one more would."""
    cpu = watts.warm_cpu if coefficients.memory_factor else watts.cpu
    return (
        coefficients.cpu * cpu
        + coefficients.gpu_standard * watts.gpu_standard
        + coefficients.gpu_performance * watts.gpu_performance
    )
