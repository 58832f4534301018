"""What a pod should request by what its workload used: a recommendation that changes nothing."""

from typing import NamedTuple

from joulie_bus.events import UseBasis
from joulie_projections.energy.use import WorkloadUse

LEAST_MINUTES = 60  # of pods, for any recommendation
CPU_PERCENTILE = 95
OF_MEAN_CPU_PCT, OF_PEAK_MEMORY_PCT = 150, 120
LEAST_CPU_MILLI, LEAST_MIB = 10, 16  # a recommendation is no lower, if the request is not
HOUR_S = 3600


class Recommended(NamedTuple):
    """Of one pod. None: the request is to stay as it is."""

    cpu_milli: int | None = None
    memory_mib: int | None = None
    why_not: str = ""


NO_USE = Recommended(why_not="no agent has reported what its pods use")


def basis_of(use: WorkloadUse, position: int = 0) -> UseBasis:
    """The numbers of a recommendation, as the events about an order record them."""
    return UseBasis(
        seconds=use.seconds,
        history_s=(use.last_ms - use.first_ms) // 1000,
        cpu_milli_s=use.cpu_milli_s,
        # A percentile is the end of a bucket.
        p95_milli=min(use.cpu_peak_milli, use.cpu.percentile(CPU_PERCENTILE)),
        memory_peak_mib=use.memory_peak_mib if use.memory.seconds else None,
        position=position,
    )


def recommended(use: WorkloadUse, least_hours: float) -> Recommended:
    return advised(basis_of(use), least_hours)


def advised(use: UseBasis, least_hours: float) -> Recommended:
    """The cores are the larger of the 95th percentile and half more than the mean; the memory is a
    fifth more than the peak. They are no limit: a request may be lower than this."""
    if why := _too_little(use, least_hours):
        return Recommended(why_not=why)
    of_mean = -(-use.cpu_milli_s * OF_MEAN_CPU_PCT // (use.seconds * 100))
    cpu = max(use.p95_milli, of_mean, LEAST_CPU_MILLI)
    if use.memory_peak_mib is None:
        return Recommended(cpu)
    return Recommended(cpu, max(LEAST_MIB, -(-use.memory_peak_mib * OF_PEAK_MEMORY_PCT // 100)))


def _too_little(use: UseBasis, least_hours: float) -> str:
    minutes, hours = use.seconds // 60, use.history_s / HOUR_S
    if minutes < LEAST_MINUTES:
        return f"{minutes} of the {LEAST_MINUTES} minutes that are needed are known"
    if hours < least_hours:
        return f"{hours:.1f} of the {least_hours:g} hours that are needed are known"
    return ""


def lowered(request: int, to: int | None) -> int:
    """The request that a pod would have: never a larger one, and none where it has none."""
    return request if to is None else min(request, to)
