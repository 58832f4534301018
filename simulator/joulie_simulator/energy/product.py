"""The product on simulated time: the operator's plans and the extender's decisions.

`plan`, `filter_nodes` and `score` are the functions that run in production, on a folded cluster.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from joulie_bus.events import NodePlan, SleepOrdered, WakeOrdered
from joulie_bus.runtime.presets import SAVINGS
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.filter import filter_nodes
from joulie_extender.decide.scoring import score
from joulie_extender.gpu.fit import GpuWeights
from joulie_extender.rules.rule import PASSED
from joulie_operator.planning.policies import BUILT_IN
from joulie_operator.planning.reconcile import LoadedPolicy, PlanBasis, plan
from joulie_operator.planning.rules import Rules, numbers
from joulie_operator.planning.sleep import SLEEPING_POLICY, sleep_numbers
from joulie_simulator.energy.fleet import Fleet
from joulie_simulator.energy.folded import FoldedCluster, pod_of
from joulie_simulator.energy.jobs import Floats, Ints, Job
from joulie_simulator.energy.node_meter import NodeMeter
from joulie_simulator.energy.policies import KubeDefault
from joulie_simulator.energy.queueing import Beside, Outcome, Switched, run_queueing
from joulie_simulator.energy.switching.conditions import CONDITIONS, USUAL, Conditions
from joulie_simulator.energy.trend import Trends

PER_POINT = 10  # of an extender with weight 1, as kube-scheduler adds it to its own scores
# PRESET=savings.
SAVING = Rules(policy="consolidate_and_sleep", eco_without_caps=False, preset=SAVINGS)
AWAKE = SAVING._replace(policy="static_partition")
GPU = GpuWeights(binpack=1.0, packing="fragmentation")
WEIGHTS = Weights(scoring="energy", gpu=GPU, preset=SAVINGS)
USUALLY = CONDITIONS[USUAL]
PRODUCT_POLICIES: Mapping[str, Weights] = {"joulie-energy": WEIGHTS}


class Product(NamedTuple):
    """What an installation runs: the settings of its plans, and of its extender."""

    rules: Rules
    weights: Weights

    @classmethod
    def of(cls, weights: Weights) -> "Product":
        """With the plans of the preset that these weights name."""
        return cls(SAVING if weights.preset == SAVINGS else Rules(preset=weights.preset), weights)

    @property
    def sleeps(self) -> bool:
        return self.rules.policy == SLEEPING_POLICY

    def at_speed(self, speed: float) -> "Product":
        """The same in a time that runs faster: a plan each minute of it, and longer times."""
        found = sleep_numbers(self.rules)
        times = {name: getattr(found, name) * speed for name in ("sleep_after_s", "wake_timeout_s")}
        given = {**numbers(self.rules.policy_numbers), **times}
        text = ",".join(f"{name}={value!r}" for name, value in given.items())
        rules = self.rules._replace(interval_s=self.rules.interval_s * speed)
        return self._replace(rules=rules._replace(policy_numbers=text))


def run_product(
    fleet: Fleet,
    jobs: Sequence[Job],
    minutes: int,
    product: Product,
    conditions: Conditions,
    meter: NodeMeter | None = None,
) -> Outcome:
    folded = FoldedCluster.under(conditions, fleet)
    scores = ExtenderScores(folded, product.weights, conditions.weight)
    operator = PlannedNodes(fleet, folded, product.rules, conditions)
    beside = Beside(Trends(fleet.size), operator, folded, meter)
    return run_queueing(fleet, jobs, scores, minutes, beside)


READ_AFTER_MINUTES = 3  # once its idle power is seen


class PlannedNodes:
    """Makes a plan each minute and switches the nodes as its executor would."""

    def __init__(
        self, fleet: Fleet, folded: FoldedCluster, rules: Rules, conditions: Conditions = USUALLY
    ) -> None:
        self._fleet, self._folded, self._rules = fleet, folded, rules
        self._policy = LoadedPolicy(BUILT_IN[rules.policy])
        self._conditions = conditions
        self._ready: dict[int, list[int]] = {}  # nodes by the minute in which they are awake
        self._waking = np.zeros(fleet.size, np.bool_)
        self._empty_minutes: Ints = np.zeros(fleet.size, np.int64)  # of nodes that are awake
        self._wakes, self._boot_w_minutes, self._lost = 0, 0.0, set[int]()
        self._draw = np.random.default_rng(1)

    @property
    def switched(self) -> Switched:
        return Switched(self._wakes, self._boot_w_minutes, len(self._lost))

    def wake_ready(self, minute: int) -> None:
        """Makes available the nodes whose start ends in this minute."""
        for node in self._ready.pop(minute, ()):
            self._fleet.awake[node] = True
            self._waking[node] = False
            self._folded.observe(node, usable=True)

    def step(self, minute: int, _: Iterable[Job]) -> Sequence[int]:
        """The plan finds the waiting jobs in the cluster state. It evicts none."""
        self._read_empty_nodes()
        if minute < self._conditions.first_plan_minute:
            self._folded.settle()
            return ()
        self._folded.commit()
        state, basis = self._folded.cluster_state, PlanBasis(self._folded.folded, self._folded.now)
        made = plan(state, self._policy, self._rules, basis)
        self._folded.fold(made.made)
        for event in made.events:
            self._folded.fold(event)
            self._switch(event, minute)
        self._folded.settle()
        self._boot_w_minutes += float(self._fleet.power_w[self._waking].sum())
        return ()

    def _read_empty_nodes(self) -> None:
        """Once for each time that a node is empty: plans use readings of nodes without pods only.
        Scores are computed without readings, from hardware and pods."""
        empty = self._fleet.awake & (self._fleet.jobs == 0)
        self._empty_minutes = np.where(empty, self._empty_minutes + 1, 0)
        for node in np.flatnonzero(self._empty_minutes == READ_AFTER_MINUTES):
            self._folded.read(int(node))

    def _switch(self, event: NodePlan, minute: int) -> None:
        node = self._folded.numbers[event.node]
        if isinstance(event, SleepOrdered):
            self._fleet.awake[node] = False
            self._folded.observe(node, usable=False)
            self._fleet.set_asleep(np.array([node]), asleep=True)
        elif isinstance(event, WakeOrdered):
            self._wake(node, minute)

    def _wake(self, node: int, minute: int) -> None:
        self._wakes += 1
        self._waking[node] = True
        self._fleet.set_asleep(np.array([node]), asleep=False)
        share = self._conditions.lost_wakes
        if share and self._draw.random() < share:
            self._lost.add(node)
        else:
            self._ready.setdefault(minute + self._conditions.wake_minutes, []).append(node)


class ExtenderScores:
    """The sum of kube-scheduler: the extender's answer, and the scores of kube-scheduler itself."""

    def __init__(self, folded: FoldedCluster, weights: Weights, weight: int = 1) -> None:
        self._folded, self._weights = folded, weights
        self._per_point = PER_POINT * weight
        self._own = KubeDefault()

    def scores(self, fleet: Fleet, job: Job) -> Floats:
        totals: Floats = np.full(fleet.size, -np.inf)
        pod, rows = pod_of(job), np.flatnonzero(fleet.fitting(job)) + 1
        columns, folded = self._folded.columns, self._folded
        context = DecisionContext(columns, folded.folded, 0, folded.now)
        verdicts = filter_nodes(pod, context, rows, self._weights).verdicts
        rows = rows[verdicts == PASSED]
        if len(rows):
            answer = score(pod, columns, rows, folded.now, 0, self._weights).answer
            own = self._own.scores(fleet, job)[rows - 1].astype(np.int64)
            totals[rows - 1] = self._per_point * answer + own
        return totals
