"""Builders: pods, pending and bound, and a decision about one."""

from msgspec.structs import replace

from bus_kit.clock import noon
from joulie_bus.events import (
    Basis,
    Candidates,
    DeviceAsk,
    FilterDecided,
    PodAsk,
    PodBound,
    PodPending,
)


def ask(
    uid: str = "pod-1", *, performance: bool = False, cores: float = 1, gpus: float = 0
) -> PodAsk:
    return PodAsk(
        uid=uid,
        namespace="team",
        name=uid,
        workload="performance" if performance else "standard",
        rule="annotation",
        cpu_milli=round(cores * 1000),
        gpu_milli=round(gpus * 1000),
    )


def bound(
    uid: str,
    node: str,
    *,
    performance: bool = False,
    devices: float | None = None,
    cores: float = 1,
) -> PodBound:
    """With `devices`, it holds so many by a ResourceClaim."""
    pod = ask(uid, performance=performance, cores=cores, gpus=devices or 0)
    if devices is not None:
        by_claim = DeviceAsk(claims=("template/some",), milli=pod.gpu_milli)
        pod = replace(pod, devices=by_claim)
    return PodBound(pod=pod, node=node)


def pending(uid: str, *, performance: bool = False) -> PodPending:
    return PodPending(pod=ask(uid, performance=performance))


def decided(uid: str) -> FilterDecided:
    """A filter decision without candidates."""
    return FilterDecided(
        pod=ask(uid),
        basis=Basis(view=0, view_age_ms=0, now=noon(), settings="s"),
        candidates=Candidates(ordinals=b""),
        verdicts=b"",
    )
