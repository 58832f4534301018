"""Builders: pods, pending and bound, and a decision about one."""

from joulie_bus.events import Basis, Candidates, FilterDecided, PodAsk, PodBound, PodPending
from joulie_bus.testing.clock import noon


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


def bound(uid: str, node: str, *, performance: bool = False) -> PodBound:
    return PodBound(pod=ask(uid, performance=performance), node=node)


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
