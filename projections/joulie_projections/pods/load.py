"""What pods ask for, in integers that add up: the same sum in whatever order they come and go."""

from collections.abc import Iterable

import msgspec

from joulie_bus.events import PodAsk

DEFAULT_CPU_MILLI = {"performance": 500, "standard": 250}  # of a pod that asks for no CPU
_GIB = 2**30
_MOST_GIB = 30  # memory makes cores dearer by 1 % a GiB, up to 30 %


class Load(msgspec.Struct, frozen=True, array_like=True, gc=False):
    cpu_milli: int = 0
    warm_cpu_micro: int = 0  # the same cores, made dearer by the memory beside them
    gpu_standard_milli: int = 0
    gpu_performance_milli: int = 0

    def __add__(self, other: "Load") -> "Load":
        return Load(
            self.cpu_milli + other.cpu_milli,
            self.warm_cpu_micro + other.warm_cpu_micro,
            self.gpu_standard_milli + other.gpu_standard_milli,
            self.gpu_performance_milli + other.gpu_performance_milli,
        )

    def __sub__(self, other: "Load") -> "Load":
        return Load(
            self.cpu_milli - other.cpu_milli,
            self.warm_cpu_micro - other.warm_cpu_micro,
            self.gpu_standard_milli - other.gpu_standard_milli,
            self.gpu_performance_milli - other.gpu_performance_milli,
        )


NO_LOAD = Load()


def total_of(loads: Iterable[Load]) -> Load:
    """All at once, for a sum of its own after each of them costs most of the adding."""
    cpu_milli = warm_cpu_micro = standard_milli = performance_milli = 0
    for load in loads:
        cpu_milli += load.cpu_milli
        warm_cpu_micro += load.warm_cpu_micro
        standard_milli += load.gpu_standard_milli
        performance_milli += load.gpu_performance_milli
    return Load(cpu_milli, warm_cpu_micro, standard_milli, performance_milli)


def load_of(pod: PodAsk) -> Load:
    cpu_milli = pod.cpu_milli or DEFAULT_CPU_MILLI[pod.workload]
    dearer = min(_MOST_GIB * _GIB, pod.memory_bytes)
    warm = cpu_milli * 1000 + cpu_milli * 10 * dearer // _GIB
    performance = pod.workload == "performance"
    return Load(
        cpu_milli,
        warm,
        0 if performance else pod.gpu_milli,
        pod.gpu_milli if performance else 0,
    )
