"""Placement policies to compare. Each gives every node a score for a job.

The fitting node with the highest score wins; ties go to the lowest index. The policies named
`reference` implement the published experiment of the project's namesake, by its description.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from joulie_projections.twin.capacity_reserve import (
    Capacity,
    CapacityReserve,
    Request,
    asks_too_much,
    capacity_reserve,
    takes_cores_of_cards,
    takes_reserve,
    totals_of,
)
from joulie_projections.twin.energy_score import EnergyNodes, energy_scores
from joulie_simulator.energy.fleet import CARD_COEFFICIENT, CARD_PEAK_W, Fleet
from joulie_simulator.energy.jobs import Floats, Job
from joulie_simulator.energy.trend import Trends

BIG_CORES = 64
BURST_W_PER_MIN = 500.0  # of the whole cluster
TAINT_POINTS = 300.0


class Policy(Protocol):
    def scores(self, fleet: Fleet, job: Job) -> Floats: ...


def chosen(fleet: Fleet, job: Job, scores: Floats) -> int:
    """The index of the best node that fits and is awake, or -1; a score of -inf refuses a node."""
    fits = fleet.fitting(job) & (scores > -np.inf)
    best = int(np.where(fits, scores, -np.inf).argmax())
    return best if fits[best] else -1


# --- Kubernetes ---------------------------------------------------------------------------------


class LeastAllocated:
    """kube-scheduler's NodeResourcesFit by default: the share that is free after the placement,
    averaged over the resources that the pod requests."""

    def scores(self, fleet: Fleet, job: Job) -> Floats:
        return _mean(_free_after(fleet, job))


class MostAllocated:
    """NodeResourcesFit with the packing strategy."""

    def scores(self, fleet: Fleet, job: Job) -> Floats:
        return 100 - _mean(_free_after(fleet, job))


class TaintedGpuNodes(MostAllocated):
    """MostAllocated, with a soft taint (PreferNoSchedule) on GPU nodes that pods with cards
    tolerate: the points of TaintToleration, which has the weight 3."""

    def scores(self, fleet: Fleet, job: Job) -> Floats:
        packed = super().scores(fleet, job)
        return packed if job.gpus else packed + np.where(fleet.cards > 0, 0.0, TAINT_POINTS)


class KubeDefault:
    """LeastAllocated plus NodeResourcesBalancedAllocation, with equal weights."""

    def scores(self, fleet: Fleet, job: Job) -> Floats:
        free = _free_after(fleet, job)
        if len(free) == 1:  # one share is always in balance
            return _mean(free) + 100.0
        balance: Floats = 100 * (1 - np.std(free, axis=0))
        return _mean(free) + balance


def _mean(shares: list[Floats]) -> Floats:
    mean: Floats = 100 * (shares[0] if len(shares) == 1 else np.mean(shares, axis=0))
    return mean


def _free_after(fleet: Fleet, job: Job) -> list[Floats]:
    cores = (fleet.free_cores - job.cores) / fleet.cores
    if not job.gpus:
        return [cores]
    return [cores, (fleet.free_cards - job.gpus) / np.maximum(fleet.cards, 1)]


# --- the published experiment -------------------------------------------------------------------


class ReferenceBaseline:
    """The experiment's MostAllocated: the sum of used shares before the placement.

    It includes the share of cards for jobs without cards. No profile of kube-scheduler does that.
    """

    def scores(self, fleet: Fleet, job: Job) -> Floats:
        used_cards = (fleet.cards - fleet.free_cards) / np.maximum(fleet.cards, 1)
        return (fleet.cores - fleet.free_cores) / fleet.cores + used_cards


class ReferenceLegacy:
    """The first formula: absolute watts plus shares; keeps CPU jobs off nodes with idle cards."""

    def __init__(self, trends: Trends) -> None:
        self._trends = trends

    def scores(self, fleet: Fleet, job: Job) -> Floats:
        marginal = fleet.marginal_w(job)
        headroom = np.maximum(0, (fleet.peak_w - fleet.power_w) / fleet.peak_w * 100)
        cooling = 100 - np.minimum(100, fleet.power_w / 4000 * 80)
        supply = 100 - np.minimum(100, fleet.power_w / 50_000 * 100)
        idle_w = np.minimum(500, fleet.free_cards * 100.0) if not job.gpus else 0.0
        trend = np.clip(self._trends.node_w_per_min / _scale(self._trends), -20, 25)
        weighted = 0.4 * headroom + 0.3 * cooling + 0.3 * supply
        waste = np.minimum(20, idle_w / 10)
        scores: Floats = weighted - np.minimum(20, marginal / 20) - waste - trend
        return scores


class ReferenceRedesign:
    """Headroom after the placement, and the trend relative to the node's peak."""

    def __init__(self, trends: Trends) -> None:
        self._trends = trends

    def scores(self, fleet: Fleet, job: Job) -> Floats:
        trend = -10 * np.clip(self._trends.node_w_per_min / (0.1 * fleet.peak_w), -1, 1)
        return np.clip(_headroom_and_cooling(fleet, job) + trend, 0, 100)


class ReferenceShipped:
    """The same with the trend in watts, weighted more in a burst: the namesake's release."""

    def __init__(self, trends: Trends) -> None:
        self._trends = trends

    def scores(self, fleet: Fleet, job: Job) -> Floats:
        trend = -np.clip(self._trends.node_w_per_min / _scale(self._trends), -25, 25)
        return np.clip(_headroom_and_cooling(fleet, job) + trend, 0, 100)


def _scale(trends: Trends) -> float:
    return 2.0 if abs(trends.cluster_w_per_min) > BURST_W_PER_MIN else 6.0


def _headroom_and_cooling(fleet: Fleet, job: Job) -> Floats:
    left = (fleet.peak_w - (fleet.power_w + fleet.marginal_w(job))) / fleet.peak_w * 100
    cooling = np.minimum(100, fleet.power_w / fleet.peak_w * 100)
    return np.maximum(0, left) * 0.7 + (100 - cooling) * 0.15


# --- ours, and two for control ------------------------------------------------------------------


class JoulieEnergy:
    """The least added watts: the function that production scores with."""

    keeps_cards = True  # cpu_pods_on_gpu_nodes = "avoid"

    def scores(self, fleet: Fleet, job: Job) -> Floats:
        nodes = energy_nodes(fleet, job)
        return energy_scores(nodes, job.cores, job.gpus, self.keeps_cards).score


def energy_nodes(fleet: Fleet, job: Job) -> EnergyNodes:
    card_w = CARD_PEAK_W * CARD_COEFFICIENT[job.performance]
    return EnergyNodes(
        free_cores=fleet.free_cores,
        free_cards=fleet.free_cards,
        cores=fleet.cores,
        cards=fleet.cards,
        idle_w=fleet.idle_w,
        w_per_core=fleet.core_w,
        w_per_card=np.full(fleet.size, card_w),  # used only where there are cards
        is_empty=fleet.jobs == 0,
    )


class Reserving(JoulieEnergy):
    """The same behind the filter of capacity_reserve, for clusters where not all jobs fit. The
    scores do not keep cards in addition (cpu_pods_on_gpu_nodes = "allow").
    """

    keeps_cards = False

    def __init__(self, reserve: CapacityReserve) -> None:
        self._reserve = reserve

    def scores(self, fleet: Fleet, job: Job) -> Floats:
        request = Request(job.cores, job.gpus, job.performance)
        nodes = Capacity(fleet.free_cores, fleet.free_cards, fleet.cores, fleet.cards)
        too_much = asks_too_much(self._reserve, request)
        if too_much or takes_reserve(self._reserve, totals_of(nodes), request):
            return np.full(fleet.size, -np.inf)
        free = fleet.free_cores, fleet.free_cards
        refused = takes_cores_of_cards(self._reserve, *free, request)
        return np.where(refused, -np.inf, super().scores(fleet, job))


class Random:
    """Any node that fits."""

    def __init__(self) -> None:
        self._draw = np.random.default_rng(1)

    def scores(self, fleet: Fleet, job: Job) -> Floats:
        return self._draw.random(fleet.size)


class RefuseBig(KubeDefault):
    """A canary: it saves energy by refusing work, and no table may call that a saving."""

    def scores(self, fleet: Fleet, job: Job) -> Floats:
        if job.cores >= BIG_CORES:
            return np.full(fleet.size, -np.inf)
        return super().scores(fleet, job)


Make = Callable[[Trends], Policy]
BASELINE = "reference-baseline"
REST = "cores-beside-card=8,cores=0.005"  # of capacity_reserve
POLICIES: Mapping[str, Make] = {
    BASELINE: lambda _: ReferenceBaseline(),
    "reference-legacy": ReferenceLegacy,
    "reference-redesign": ReferenceRedesign,
    "joulie": ReferenceShipped,
    "kube-default": lambda _: KubeDefault(),
    "least-allocated": lambda _: LeastAllocated(),
    "most-allocated": lambda _: MostAllocated(),
    "most-allocated-taint": lambda _: TaintedGpuNodes(),
    "joulie-energy": lambda _: JoulieEnergy(),
    "joulie-energy-r1": lambda _: Reserving(
        capacity_reserve(f"cards=0.01,cores-per-card=8,{REST}")
    ),
    "joulie-energy-r7": lambda _: Reserving(
        capacity_reserve(f"cards=0.07,cores-per-card=4,{REST}")
    ),
    "random": lambda _: Random(),
    "refuse-big": lambda _: RefuseBig(),
}
