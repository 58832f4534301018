"""The plan of moves in words: why each pod is moved, where it fits, what becomes usable, and which
pods stay.

It is a recommendation: nothing is evicted, and kube-scheduler decides where a pod goes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from joulie_extender.defragment.fleet import Fleet, Move
from joulie_extender.defragment.movable_pods import Judged, Movable, movable
from joulie_extender.defragment.search import Summary, Usable, planned_moves, summary_of
from joulie_extender.gpu.models import Aliases
from joulie_extender.gpu.shapes import CARD
from joulie_projections.state.state import ClusterState, PodState

EXAMPLES = 5  # pods that are named for each reason to stay


class NodeUse(NamedTuple):
    """Of one node, in GPUs."""

    free: float
    unusable: float  # of these
    whole_cards: int  # wholly free and of use


class PlannedMove(NamedTuple):
    uid: str
    pod: str
    node: str
    would_fit: str  # another node
    cores: float
    gpus: float
    gains: float  # GPUs that are of use to pods that ask for GPUs, and were not
    because: str


class Staying(NamedTuple):
    """Pods on nodes with cards."""

    because: str
    pods: int
    examples: tuple[str, ...]


class DefragmentationPlan(NamedTuple):
    pods: int  # bound
    before: Summary
    after: Summary
    moves: Sequence[PlannedMove]
    stays: Sequence[Staying]

    @property
    def cores(self) -> float:
        return sum(move.cores for move in self.moves)

    @property
    def gpus(self) -> float:
        return sum(move.gpus for move in self.moves)


def defragmentation_plan(
    state: ClusterState,
    aliases: Aliases,
    most: int,
    judged: Judged = Judged(),  # noqa: B008
) -> DefragmentationPlan:
    found = movable(state, aliases, judged)
    start = found.fleet.copied()
    before = summary_of(start, found.usable)
    moves = planned_moves(found.fleet, found.usable, found.occupants, most, judged.budgets)
    return DefragmentationPlan(
        pods=sum(bool(pod.node) and not pod.finished for pod in state.pods.values()),
        before=before,
        after=summary_of(found.fleet, found.usable),
        moves=_described(start, found, moves, state.pods),
        stays=_staying(found.stays, state.pods),
    )


def _described(
    fleet: Fleet, found: Movable, moves: Sequence[Move], pods: Mapping[str, PodState]
) -> list[PlannedMove]:
    told = list[PlannedMove]()
    for move in moves:
        source, target = found.names[move.occupant.row], found.names[move.row]
        lost = _lost(fleet, found.usable, move)
        before = [use_of(fleet, found.usable, row) for row in (move.occupant.row, move.row)]
        fleet.move(move)
        after = [use_of(fleet, found.usable, row) for row in (move.occupant.row, move.row)]
        pod = pods[move.occupant.uid].pod
        told.append(
            PlannedMove(
                uid=pod.uid,
                pod=f"{pod.namespace}/{pod.name}",
                node=source,
                would_fit=target,
                cores=move.occupant.need.milli / 1000,
                gpus=pod.gpu_milli / CARD,
                gains=round((lost - _lost(fleet, found.usable, move)) / CARD, 3),
                because=f"{_change(source, before[0], after[0])}; "
                f"{_change(target, before[1], after[1])}",
            )
        )
    return told


def use_of(fleet: Fleet, usable: Usable, row: int) -> NodeUse:
    one = fleet.on(np.array([row]))
    summary = summary_of(one, usable)
    return NodeUse(summary.free, summary.unusable, summary.cards)


def _lost(fleet: Fleet, usable: Usable, move: Move) -> float:
    both = fleet.on(np.array([move.occupant.row, move.row]))
    return float(usable.expected_loss(both).sum())


def _change(node: str, before: NodeUse, after: NodeUse) -> str:
    return f"{node} {_words(before)} before, {_words(after)} after"


def _words(use: NodeUse) -> str:
    return f"{use.free:.2f} free, {use.unusable:.2f} of no use, {use.whole_cards} whole"


def _staying(stays: Mapping[str, str], pods: Mapping[str, PodState]) -> list[Staying]:
    by_reason = defaultdict[str, list[str]](list)
    for uid, because in stays.items():
        by_reason[because].append(f"{pods[uid].pod.namespace}/{pods[uid].pod.name}")
    found = [
        Staying(because, len(names), tuple(sorted(names)[:EXAMPLES]))
        for because, names in by_reason.items()
    ]
    return sorted(found, key=lambda each: (-each.pods, each.because))
