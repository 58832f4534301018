"""The pods of a log as they ran, and under other placement policies, with an interval.

Under another policy the same pods arrive at the same times, request the same and run as long. A pod
that fits on no node waits. What happened, and the other policy, are in the same physics, so that
errors of the physics are in both; the runs differ by the order of equal nodes and by the power of
the pods, and give the interval.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from joulie_projections.hardware.card_power import CURVES, CardPower
from joulie_projections.twin.energy_score import EnergyNodes, energy_scores
from joulie_simulator.energy.fleet import CARD_COEFFICIENT, MEASURED, Fleet, work_w
from joulie_simulator.energy.jobs import MINUTE_S, Floats, Job
from joulie_simulator.energy.policies import POLICIES, JoulieEnergy, Make, energy_nodes
from joulie_simulator.energy.queueing import Beside, Outcome, run_queueing
from joulie_simulator.energy.simulation import W_SECONDS_PER_KWH
from joulie_simulator.energy.switching.sleep import SleepController, SleepRules
from joulie_simulator.energy.trend import Trends

BASELINE = "kube-default"
STEPS = 2000  # of a short period; a step is at most a minute
SHORTEST_STEP_S = 1.0
ASLEEP = 0.1  # of the idle power: assumed


class LoggedNode(NamedTuple):
    name: str
    cores: float
    cards: int
    idle_w: float  # without pods
    w_per_core: float  # at full use
    w_per_card: float
    curve: CardPower | None = None  # of a card that was measured; the others draw by a line


class LoggedPod(NamedTuple):
    arrival_s: float  # from the start of the period
    cores: float
    cards: int
    performance: bool
    duration_s: float


def whole_cards(gpu_milli: int) -> int:
    """A part of a card counts as a whole one."""
    return -(-gpu_milli // 1000)


class LoggedSleep(NamedTuple):
    """The numbers of the policy that puts nodes to sleep; None: those of the simulation."""

    reserve: float | None = None  # share of a pool that stays empty and awake
    max_share: float = 1.0  # of a pool that may sleep
    after_s: float | None = None  # without pods, before a node may sleep


class Happened(NamedTuple):
    """What the log holds of the period."""

    stays: Sequence[tuple[LoggedPod, int, float]]  # the node by its number, and the seconds there
    off_s: Sequence[float]  # of each node, switched off by an order to sleep
    waits_s: Sequence[float]  # of pods that were asked for in the period; for the scheduler: 0
    waiting: int  # pods at its end
    wakes: int
    of_scheduler: int = 0  # pods that waited for a step or more for the scheduler alone


class Question(NamedTuple):
    nodes: Sequence[LoggedNode]
    pods: Sequence[LoggedPod]
    seconds: float
    use: float  # of what pods request, as measured
    sleeps: bool  # whether the policy of the log puts nodes to sleep
    sleep: LoggedSleep = LoggedSleep()
    happened: Happened | None = None  # None: the policy of the log is simulated, too


class Variant(NamedTuple):
    seed: int  # of the order of equal nodes
    factor: float  # of the use


VARIANTS = (Variant(1, 1.0), Variant(2, 1.0), Variant(3, 1.0), Variant(1, 0.7), Variant(1, 1.3))


class Run(NamedTuple):
    kwh: float
    work_kwh: float
    wait_p50_s: float
    wait_p99_s: float
    placed: int
    waiting: int
    wakes: int


class Interval(NamedTuple):
    low: float
    mid: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        return cls(min(values), median(values), max(values))


class Comparison(NamedTuple):
    """`runs` by policy, in the order of the variants."""

    runs: Mapping[str, Sequence[Run]]
    saved_kwh: Interval  # by the policy of the log against the baseline
    saved_share: Interval
    saved_per_work: Interval  # the share of the energy per completed work


def compared(asked: Question, policy: str) -> Comparison:
    """What the log holds, or the policy of the log, beside kube-scheduler's default."""
    baseline = [_run(asked, variant, BASELINE, sleeps=False) for variant in VARIANTS]
    ours = [_ours(asked, variant, policy) for variant in VARIANTS]
    pairs = list(zip(baseline, ours, strict=True))
    saved = [before.kwh - after.kwh for before, after in pairs]
    shares = [
        kwh / before.kwh if before.kwh else 0.0 for kwh, before in zip(saved, baseline, strict=True)
    ]
    per_work = [
        1 - _per_work(after) / _per_work(before) if _per_work(before) else 0.0
        for before, after in pairs
    ]
    return Comparison(
        {BASELINE: baseline, policy: ours},
        Interval.of(saved),
        Interval.of(shares),
        Interval.of(per_work),
    )


def _per_work(run: Run) -> float:
    return run.kwh / run.work_kwh if run.work_kwh else 0.0


def _ours(asked: Question, variant: Variant, policy: str) -> Run:
    if asked.happened is None:
        return _run(asked, variant, policy, sleeps=asked.sleeps)
    return as_it_ran(asked, asked.happened, min(1.0, asked.use * variant.factor))


def as_it_ran(asked: Question, happened: Happened, use: float) -> Run:
    fleet = LoggedFleet(asked.nodes)
    on_s = asked.seconds - (1 - ASLEEP) * np.array(happened.off_s)
    watt_seconds, work = float((fleet.idle_w * on_s).sum()), 0.0
    for pod, node, seconds in happened.stays:
        (job,) = _jobs([pod], use, 1.0)
        watt_seconds += fleet.dynamic_of(node, job) * seconds
        work += work_w(job) * seconds
    # In whole steps, as in a simulated run: a pod that is placed within a step has not waited.
    step = step_s(asked.seconds)
    waits = [wait // step * step for wait in happened.waits_s]
    p50, p99 = np.percentile(waits, (50, 99)).tolist() if waits else (0.0, 0.0)
    return Run(
        watt_seconds / W_SECONDS_PER_KWH,
        work / W_SECONDS_PER_KWH,
        p50,
        p99,
        len(happened.stays),
        happened.waiting,
        happened.wakes,
    )


def _run(asked: Question, variant: Variant, policy: str, *, sleeps: bool) -> Run:
    """Steps shorter than a minute are minutes of a time that runs faster."""
    speed = MINUTE_S / step_s(asked.seconds)
    order = np.random.default_rng(variant.seed).permutation(len(asked.nodes))
    fleet = LoggedFleet([asked.nodes[place] for place in order])
    use = min(1.0, asked.use * variant.factor)
    jobs = list(_jobs(asked.pods, use, speed))
    trends = Trends(fleet.size)
    minutes = math.ceil(asked.seconds * speed / MINUTE_S)
    made = _POLICIES[policy](trends)
    control = SleepController(fleet, _rules(speed, asked.sleep)) if sleeps else None
    outcome = run_queueing(fleet, jobs, made, minutes, Beside(trends, control))
    return _slowed(outcome, speed)


def step_s(seconds: float) -> float:
    return min(MINUTE_S, max(SHORTEST_STEP_S, seconds / STEPS))


def _rules(speed: float, logged: LoggedSleep) -> SleepRules:
    usual = SleepRules(max_share=logged.max_share)
    if logged.reserve is not None:
        usual = usual._replace(spare_cpu_nodes=logged.reserve, spare_gpu_nodes=logged.reserve)
    after = usual.idle_minutes if logged.after_s is None else logged.after_s / MINUTE_S
    return usual._replace(
        idle_minutes=math.ceil(after * speed),
        wake_minutes=math.ceil(usual.wake_minutes * speed),
    )


def _jobs(pods: Sequence[LoggedPod], use: float, speed: float) -> Iterator[Job]:
    for pod in sorted(pods):
        yield Job(
            pod.arrival_s * speed,
            0,
            pod.cores,  # type: ignore[arg-type]  # of a log: a fraction too
            pod.cards,
            pod.performance,
            use,
            use,
            pod.duration_s * speed,
        )


def _slowed(outcome: Outcome, speed: float) -> Run:
    return Run(
        outcome.kwh / speed,
        outcome.work_kwh / speed,
        outcome.wait_p50_s / speed,
        outcome.wait_p99_s / speed,
        outcome.admitted,
        outcome.waiting,
        outcome.switched.wakes,
    )


class LoggedFleet(Fleet):
    """Nodes as the log knows them. Idle power is that of the node; pods add what they use."""

    def __init__(self, nodes: Sequence[LoggedNode]) -> None:
        super().__init__(len(nodes), 0, MEASURED)
        self.cores = np.array([node.cores for node in nodes])
        self.cards = np.array([node.cards for node in nodes], np.int64)
        self.free_cores = self.cores.copy()
        self.free_cards = self.cards.copy()
        self.core_w = np.array([node.w_per_core for node in nodes])
        self.card_w: Floats = np.array([node.w_per_card for node in nodes])
        self.idle_w = np.array([node.idle_w for node in nodes])
        self.cpu_peak_w = self.core_w * self.cores
        self.peak_w = np.maximum(1.0, self.idle_w + self.cpu_peak_w + self.card_w * self.cards)
        numbers = [CURVES.number(node.curve.milliwatts) if node.curve else 0 for node in nodes]
        self.curves = np.array(numbers, np.int64)  # of the cards, by their numbers in `CURVES`
        self._asleep_w = self.idle_w * ASLEEP
        self.power_w = self.idle_w.copy()

    def dynamic_of(self, node: int, job: Job) -> float:
        cores, curve = self.core_w[node] * job.cores * job.cpu_use, self.curves[node]
        rate = CARD_COEFFICIENT[job.performance]
        if curve and job.gpus:
            added_w = CURVES.curve(int(curve)).added_w(rate * job.gpu_use)
            return float(cores + job.gpus * added_w)
        cards = self.card_w[node] * rate * job.gpus
        return float(cores + cards * job.gpu_use)

    def update_power(self, node: int) -> None:
        self.power_w[node] = self.idle_w[node] + self.dynamic_w[node]

    def idle_cards_w(self) -> float:
        return 0.0  # part of the idle power of the nodes

    def marginal_w(self, job: Job) -> Floats:
        cards: Floats = self.card_w * CARD_COEFFICIENT[job.performance] * job.gpus
        return self.core_w * job.cores + cards


class LoggedEnergy(JoulieEnergy):
    """`SCORING=energy` with the cards of the log."""

    def scores(self, fleet: Fleet, job: Job) -> Floats:
        nodes = energy_nodes(fleet, job)
        if isinstance(fleet, LoggedFleet):
            nodes = _with_cards(nodes, fleet, CARD_COEFFICIENT[job.performance])
        return energy_scores(nodes, job.cores, job.gpus).score


def _with_cards(nodes: EnergyNodes, fleet: LoggedFleet, rate: float) -> EnergyNodes:
    """As the extender knows them: by the curve of a measured model, else by a line."""
    linear_w = fleet.card_w * rate
    if not fleet.curves.any():
        return nodes._replace(w_per_card=linear_w)
    curve = CURVES.watts(fleet.curves, rate)
    return nodes._replace(
        w_per_card=np.where(curve.is_measured, curve.work_w, linear_w),
        process_w=curve.process_w,
        idle_card_w=curve.idle_w,
    )


_POLICIES: Mapping[str, Make] = {**POLICIES, "joulie-energy": lambda _: LoggedEnergy()}
