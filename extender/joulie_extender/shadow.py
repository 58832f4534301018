"""Answers for pods that another scheduler places, as if the extender had been asked.

No request and no reply: the decisions are recorded, under the name of this replica, and have no
effect. The candidates are the nodes that have room for what the pod requests of cores and cards;
affinity, taints and memory are not in the log.
"""

import asyncio
from collections.abc import Iterable, Iterator

from joulie_bus.core.pacing import rest_s
from joulie_bus.events import Duty, FilterDecided, PodAsk
from joulie_bus.log.producer import Clock
from joulie_bus.runtime.logging import get_logger
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.decide import (
    DecisionOptions,
    filter_decision,
    let_through,
    prioritize_decision,
)
from joulie_extender.decision_log.shipping import Shipper
from joulie_extender.protocol.candidates import candidates_of, rows_by_name
from joulie_projections.state.state import ClusterState, NodeState, PodState
from joulie_projections.view.view import View, ViewSnapshot

REPLICA = "shadow"  # the name that marks its decisions
DUTY: Duty = "all"
PAUSE_S = 0.05  # between two looks at the view
NOT_PLACED = ("daemonset", "mirror")  # exemptions of pods whose node is not a choice
log = get_logger("shadow")


class Shadow:
    """`answered` holds the uids of pods that need no answer any more."""

    def __init__(
        self, view: View, shipper: Shipper, weights: Weights, clock: Clock, answered: set[str]
    ) -> None:
        self._view = view
        self._shipper = shipper
        self._weights = weights
        self._clock = clock
        self._answered = answered

    async def follow(self) -> None:
        """Runs until cancelled."""
        moves = 0
        while True:
            moves = await self._view.moved_since(moves)
            if self._view.is_ready:
                began = asyncio.get_running_loop().time()
                self.answer_new()
                spent_s = asyncio.get_running_loop().time() - began
                await asyncio.sleep(max(PAUSE_S, rest_s(spent_s)))

    def answer_new(self) -> int:
        """Answers for each pod that was not seen before, at one position of the view."""
        state = self._view.cluster_state
        new = [pod for uid, pod in state.pods.items() if uid not in self._answered]
        if not new:
            return 0
        snapshot = self._view.snapshot()
        for pod in new:
            if not pod.finished and pod.pod.exempt not in NOT_PLACED:
                self._answer(pod, state, snapshot)
        self._answered |= {pod.pod.uid for pod in new}
        if len(self._answered) > 2 * len(state.pods):
            self._answered &= state.pods.keys()
        return len(new)

    def _answer(self, pod: PodState, state: ClusterState, snapshot: ViewSnapshot) -> None:
        columns = snapshot.twin_columns
        context = DecisionContext(
            columns,
            snapshot.position,
            snapshot.age_ms,
            self._clock(),
            snapshot.behind_ms,
            snapshot.incarnation,
        )
        names = list(with_room(state.nodes.items(), pod))
        decision = self._filter(pod.pod, names, context)
        through = let_through(decision)
        kept = [name for name, passes in zip(names, through.tolist(), strict=True) if passes]
        if kept:
            candidates = candidates_of(kept, rows_by_name(columns, kept))
            decided = prioritize_decision(pod.pod, candidates, kept, context, self._weights, DUTY)
            self._shipper.record(decided)

    def _filter(self, pod: PodAsk, names: list[str], context: DecisionContext) -> FilterDecided:
        rows = rows_by_name(context.twin_columns, names)
        candidates = candidates_of(names, rows)
        options = DecisionOptions(DUTY)
        decided = filter_decision(pod, candidates, rows, context, self._weights, options)
        self._shipper.record(decided)
        return decided


def with_room(nodes: Iterable[tuple[str, NodeState]], pod: PodState) -> Iterator[str]:
    """The nodes with room for the pod; a pod that is bound already takes none of its own."""
    for name, node in nodes:
        own = pod.pod if pod.node == name else None
        cores = node.cpu_milli - node.load.cpu_milli + (own.cpu_milli if own else 0)
        used = node.load.gpu_standard_milli + node.load.gpu_performance_milli
        cards = node.gpu_milli - used + (own.gpu_milli if own else 0)
        is_open = node.present and node.ready and node.schedulable
        if is_open and cores >= pod.pod.cpu_milli and cards >= pod.pod.gpu_milli:
            yield name
