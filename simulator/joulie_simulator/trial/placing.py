"""Places pods as kube-scheduler with Joulie's extender does, and plans as the operator does.

The nodes that pass and kube-scheduler's scores are those of its model. `filter_nodes`, `score` and
`plan` are the functions that run in production, on the facts of this moment.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from joulie_bus.events import Fact, NodeSeen, PodBound, PodPending, SleepOrdered
from joulie_bus.runtime.presets import SAVINGS
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.filter import filter_nodes
from joulie_extender.decide.scoring import score
from joulie_extender.gpu.fit import GpuWeights
from joulie_extender.rules.rule import PASSED
from joulie_operator.planning.eligible import RESERVED_LABEL
from joulie_operator.planning.policies import BUILT_IN
from joulie_operator.planning.reconcile import LoadedPolicy, PlanBasis, plan
from joulie_operator.planning.rules import Rules
from joulie_operator.planning.sleep import SLEEPING_POLICY
from joulie_projections.fold.registry import evolve
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import NodeWatts
from joulie_projections.twin.twin import hardware_of, load_on
from joulie_simulator.kube_scheduler.cluster import Cluster
from joulie_simulator.kube_scheduler.schedule import Profile, filtered, totals
from joulie_simulator.trial.moment import Moment, MomentNode, MomentPod

PER_POINT = 10  # of an extender with weight 1, as kube-scheduler adds it to its own scores
# As PRESET=savings; a plan may put all of them to sleep at once, since no time passes here.
RULES = Rules(
    policy=SLEEPING_POLICY,
    policy_numbers="max_step=1",
    selector="",
    eco_without_caps=False,
    preset=SAVINGS,
)
WEIGHTS = Weights(
    scoring="energy", gpu=GpuWeights(binpack=1.0, packing="fragmentation"), preset=SAVINGS
)
SETTLED_NS = 3_600 * 10**9  # from the first plan to the second: longer than nodes have to be empty
BEGAN_NS = 10**18


class Placing:
    """The cluster without pods at first."""

    def __init__(self, moment: Moment, profile: Profile) -> None:
        self._cluster, self._profile = Cluster(moment.models), profile
        self._now, self._folded = BEGAN_NS, 0
        self._state = ClusterState()
        self._draft = Draft(self._state)
        for node in moment.nodes:
            self._fold(_covered(node))
            if node.hardware is not None:
                self._fold(node.hardware)
        self._plan()
        self._columns = TwinColumns.of_state(self._state)

    def put(self, pod: MomentPod, node: str) -> None:
        """Binds a pod to a node, whatever the filters say."""
        self._bind(pod, self._cluster.nodes.rows[node])

    def place(self, pod: MomentPod) -> str | None:
        """Binds the pod to the best node; None if no node passes."""
        row = self._best(pod)
        if row is None:
            return None
        self._bind(pod, row)
        return self._cluster.nodes.names[row]

    def wait(self, pods: Iterable[MomentPod]) -> None:
        for pod in pods:
            self._fold(PodPending(pod=pod.ask))

    def sleeping(self) -> list[str]:
        """The nodes that the next plan puts to sleep, in the order of the nodes."""
        self._now += SETTLED_NS
        ordered = {event.node for event in self._plan() if isinstance(event, SleepOrdered)}
        return [name for name in self._cluster.nodes.names if name in ordered]

    # --- one pod ------------------------------------------------------------------------------

    def _best(self, pod: MomentPod) -> int | None:
        rows = np.flatnonzero(filtered(self._cluster, pod.asked).nodes)
        if len(rows):
            context = DecisionContext(self._columns, self._folded, 0, self._now)
            rows = rows[filter_nodes(pod.ask, context, rows + 1, WEIGHTS).verdicts == PASSED]
        if len(rows) < 2:
            return int(rows[0]) if len(rows) else None
        answer = score(pod.ask, self._columns, rows + 1, self._now, 0, WEIGHTS).answer
        total = PER_POINT * answer + totals(self._cluster, pod.asked, rows, self._profile)
        return int(rows[int(np.argmax(total))])

    def _bind(self, pod: MomentPod, row: int) -> None:
        self._cluster.bind(pod.asked, row)
        self._fold(PodBound(pod=pod.ask, node=self._cluster.nodes.names[row]))
        self._show_pods(row)

    def _show_pods(self, row: int) -> None:
        """Writes the row in place, which copies nothing: columns follow the state otherwise."""
        state = self._draft.nodes.get(self._cluster.nodes.names[row])
        assert state is not None
        watts = load_on(state.load, hardware_of(state))
        for part, value in zip(NodeWatts._fields, watts, strict=True):
            self._columns.columns[f"pods_{part}_w"][row + 1] = value
        self._columns.columns["daemons_only"][row + 1] = 0 < state.pods == state.daemon_pods

    # --- facts and plans ----------------------------------------------------------------------

    def _fold(self, fact: Fact) -> None:
        self._folded += 1
        evolve(self._draft, fact, self._now)

    def _plan(self) -> Sequence[Fact]:
        self._draft.commit()
        policy = LoadedPolicy(BUILT_IN[RULES.policy])
        made = plan(self._state, policy, RULES, PlanBasis(self._folded, self._now))
        for event in (made.made, *made.events):
            self._fold(event)
        self._draft.commit()
        return made.events


def _covered(node: MomentNode) -> NodeSeen:
    """A node that is left out is not the operator's."""
    if not node.left_out:
        return node.seen
    return replace(node.seen, labels={**node.seen.labels, RESERVED_LABEL: "true"})
