"""The watts that the pod adds to a node, and those of pods that no reading includes yet."""

from dataclasses import dataclass

from joulie_bus.core.setting_fields import boolean, number, setting
from joulie_projections.twin.power import Coefficients


@dataclass(frozen=True, kw_only=True)
class CoefficientSettings:
    cpu: float = setting(
        number(0, 2),
        "MARGINAL_CPU_UTIL_COEFF",
        "0.7",
        "Share of the requested CPU power that a pod is assumed to draw",
    )
    gpu_standard: float = setting(
        number(0, 2),
        "MARGINAL_GPU_UTIL_COEFF_STANDARD",
        "0.65",
        "Share of the requested GPU power that a standard pod is assumed to draw",
    )
    gpu_performance: float = setting(
        number(0, 2),
        "MARGINAL_GPU_UTIL_COEFF_PERFORMANCE",
        "0.85",
        "Share of the requested GPU power that a performance pod is assumed to draw",
    )
    memory_factor: bool = setting(
        boolean,
        "MARGINAL_MEMORY_FACTOR",
        "true",
        "Raise the CPU estimate by 1 % per requested GiB of memory, up to 30 %",
    )

    @property
    def coefficients(self) -> Coefficients:
        return Coefficients(self.cpu, self.gpu_standard, self.gpu_performance, self.memory_factor)


@dataclass(frozen=True, kw_only=True)
class PowerWeights:
    coefficients: Coefficients = Coefficients()


@dataclass(frozen=True, kw_only=True)
class FacilitySettings:
    facility: bool = setting(
        boolean,
        "ENABLE_FACILITY_METRICS",
        "false",
        "Multiply the watts of a pod by the PUE of the facility, where it is polled",
    )
