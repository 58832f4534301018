"""The pods of a log on simulated time: they arrive again, and where each one is placed changes what
the next one finds.

Under each policy the same pods arrive at the same times, request the same and run as long. A pod
that fits on no node waits.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from joulie_simulator.energy.jobs import MINUTE_S, Job
from joulie_simulator.energy.logged_fleet import LoggedFleet, LoggedNode
from joulie_simulator.energy.node_meter import NodeMeter
from joulie_simulator.energy.policies import POLICIES
from joulie_simulator.energy.product import USUALLY, Product, run_product
from joulie_simulator.energy.queueing import Beside, Outcome, run_queueing
from joulie_simulator.energy.switching.conditions import WAKE_MINUTES
from joulie_simulator.energy.trend import Trends

BASELINE = "kube-default"
STEPS = 2000  # of a short period; a step is at most a minute
SHORTEST_STEP_S = 1.0
WAKE_S = WAKE_MINUTES * MINUTE_S


class LoggedPod(NamedTuple):
    arrival_s: float  # from the start of the period
    cores: float
    cards: int
    performance: bool
    duration_s: float
    memory: float = 0.0  # bytes


def whole_cards(gpu_milli: int) -> int:
    """A part of a card counts as a whole one."""
    return -(-gpu_milli // 1000)


def step_s(seconds: float) -> float:
    return min(MINUTE_S, max(SHORTEST_STEP_S, seconds / STEPS))


class Use(NamedTuple):
    """The share of what pods request that they use."""

    cpu: float
    cards: float


class Logged(NamedTuple):
    """What each policy gets."""

    nodes: Sequence[LoggedNode]
    pods: Sequence[LoggedPod]
    seconds: float
    use: Use


class Timing(NamedTuple):
    """Of plans and of nodes, in seconds."""

    wake_s: float = WAKE_S
    first_plan_s: float = 0.0  # from the start of the period


USUAL_TIMING = Timing()


class Setting(NamedTuple):
    """What is equal for the policies that are compared. Steps shorter than a minute are minutes of
    a time that runs faster."""

    fleet: LoggedFleet
    jobs: Sequence[Job]
    minutes: int
    speed: float

    @classmethod
    def of(cls, logged: Logged, seed: int) -> "Setting":
        """The seed gives the order of equal nodes."""
        speed = MINUTE_S / step_s(logged.seconds)
        order = np.random.default_rng(seed).permutation(len(logged.nodes))
        fleet = LoggedFleet([logged.nodes[place] for place in order])
        jobs = list(jobs_of(logged.pods, logged.use, speed))
        return cls(fleet, jobs, math.ceil(logged.seconds * speed / MINUTE_S), speed)

    def node_meter(self) -> NodeMeter:
        return NodeMeter(self.fleet.metered, self.minutes, MINUTE_S / self.speed)


def placed_by_default(setting: Setting, meter: NodeMeter | None = None) -> Outcome:
    """By kube-scheduler's default; no node sleeps."""
    fleet, jobs, minutes, _ = setting
    trends = Trends(fleet.size)
    beside = Beside(trends, meter=meter)
    return run_queueing(fleet, jobs, POLICIES[BASELINE](trends), minutes, beside)


def placed_by_product(
    setting: Setting,
    product: Product,
    timing: Timing = USUAL_TIMING,
    meter: NodeMeter | None = None,
) -> Outcome:
    fleet, jobs, minutes, speed = setting
    wake = max(1, math.ceil(timing.wake_s / MINUTE_S * speed))
    first = math.ceil(timing.first_plan_s / MINUTE_S * speed)
    conditions = USUALLY._replace(wake_minutes=wake, first_plan_minute=first)
    return run_product(fleet, jobs, minutes, product.at_speed(speed), conditions, meter)


def jobs_of(pods: Sequence[LoggedPod], use: Use, speed: float) -> Iterator[Job]:
    for pod in sorted(pods):
        yield Job(
            pod.arrival_s * speed,
            0,
            pod.cores,  # type: ignore[arg-type]  # of a log: a fraction too
            pod.cards,
            pod.performance,
            use.cpu,
            use.cards,
            pod.duration_s * speed,
            pod.memory,
        )
