"""Pods with devices that were answered for, and that the view has not, or not all of.

kube-scheduler asks about the next pod milliseconds after an answer, long before the allocation and
the binding are in the view. Until they are, a pod counts on the node that its answer made the best.
That is a guess: it ends when the view says otherwise, when the pod is asked about again, or after
`KEPT_NS`. An entry of the log has what its score counted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from joulie_bus.events import (
    MOST_IN_FLIGHT,
    Candidates,
    FilterDecided,
    InFlight,
    NodesInFlight,
    PodAsk,
    PrioritizeDecided,
)
from joulie_extender.decide.decide import answered_scores, let_through
from joulie_projections.pods.load import Load, load_of
from joulie_projections.state.state import PodState, gang_of
from joulie_projections.twin.card_columns import Cards
from joulie_projections.view.view import ViewSnapshot

KEPT_NS = 20_000_000_000
_MILLI = 1000
NO_ROW = -1


@dataclass
class _Pod:
    ordinal: int  # of its node
    load: Load
    devices: int
    claims: frozenset[tuple[str, str]]  # that other pods may share
    until: int
    gang: str = ""  # its group
    is_known: bool = False  # a view had it

    def take(self, taken: "dict[int, list[int]]", *, is_bound: bool, holds: bool) -> None:
        """Adds to the numbers of its node, in the order of the fields of `InFlight`."""
        sums = taken.setdefault(self.ordinal, [0, 0, 0, 0, 0])
        if not is_bound:
            load = self.load
            sums[0] += load.cpu_milli
            sums[1] += load.warm_cpu_micro
            sums[2] += load.gpu_standard_milli
            sums[3] += load.gpu_performance_milli
        if not holds:
            sums[4] += self.devices


def asks_devices(pod: PodAsk, cards: Cards) -> bool:
    """Whether kube-scheduler may give it devices of DRA: by claims, or as an extended resource."""
    if pod.devices.claims:
        return True
    return bool(pod.gpu_milli) and bool(cards.bools("by_dra").any())


class PodsInFlight:
    def __init__(self) -> None:
        self._pods: dict[str, _Pod] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def known(self, pods: Mapping[str, PodState]) -> Mapping[str, PodState]:
        """Those in flight that a view has, at its position. One that it has no more is gone."""
        found = {uid: pods[uid] for uid in self._pods if uid in pods}
        for uid, pod in [*self._pods.items()]:
            if pod.is_known and uid not in found:
                del self._pods[uid]
            pod.is_known = uid in found
        return found

    def forget(self, uid: str) -> None:
        """The attempt before has failed, and with it that of the whole group."""
        gone = self._pods.pop(uid, None)
        if gone is not None and gone.gang:
            self._pods = {each: pod for each, pod in self._pods.items() if pod.gang != gone.gang}

    def at(self, snapshot: ViewSnapshot, now: int) -> NodesInFlight:
        """What they take beyond what the snapshot has."""
        taken: dict[int, list[int]] = {}
        cards = snapshot.twin_columns.cards
        for uid, pod in [*self._pods.items()]:
            seen, held_on = snapshot.pods.get(uid), _held_on(uid, cards)
            is_bound, holds = seen is not None and bool(seen.node or seen.finished), bool(held_on)
            is_elsewhere = holds and pod.ordinal not in held_on
            if seen is not None and seen.node:
                is_elsewhere |= snapshot.twin_columns.rows.get(seen.node, 0) != pod.ordinal + 1
            if is_elsewhere or now >= pod.until or (is_bound and (holds or not pod.devices)):
                del self._pods[uid]
            else:
                pod.take(taken, is_bound=is_bound, holds=holds)
        return tuple(InFlight(ordinal, *sums) for ordinal, sums in sorted(taken.items()))

    def scored(self, decision: PrioritizeDecided) -> None:
        scores = answered_scores(decision)
        if len(scores):
            self._put(decision, int(scores.argmax()))

    def filtered(self, decision: FilterDecided) -> None:
        """kube-scheduler asks for no scores if one node is left."""
        through = np.flatnonzero(let_through(decision))
        if len(through) == 1:
            self._put(decision, int(through[0]))

    def bound(self, uid: str, ordinal: int) -> None:
        """kube-scheduler says where the pod goes. It counts nowhere on a node that the view does
        not know."""
        if ordinal == NO_ROW:
            self.forget(uid)
        elif uid in self._pods:
            self._pods[uid].ordinal = ordinal

    def _put(self, decision: PrioritizeDecided | FilterDecided, place: int) -> None:
        ordinal, pod = _ordinal_of(decision.candidates, place), decision.pod
        if ordinal == NO_ROW:
            return
        shared = frozenset((pod.namespace, c) for c in pod.devices.claims if c.startswith("claim/"))
        is_second = any(shared & other.claims for other in self._pods.values())
        devices = 0 if is_second else -(-pod.gpu_milli // _MILLI)
        load, until = load_of(pod), decision.basis.now + KEPT_NS
        self._pods[pod.uid] = _Pod(ordinal, load, devices, shared, until, gang_of(pod))
        if len(self._pods) > MOST_IN_FLIGHT:
            del self._pods[next(iter(self._pods))]


def _ordinal_of(candidates: Candidates, place: int) -> int:
    return int.from_bytes(candidates.ordinals[4 * place : 4 * place + 4], "little", signed=True)


def _held_on(uid: str, cards: Cards) -> Iterable[int]:
    """The ordinals of the nodes where it has devices."""
    return [] if uid not in cards.holders else (cards.nodes_of([uid]) - 1).tolist()
