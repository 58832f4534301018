"""The nodes and pods of the state as a plan of moves takes them, and which pods have to stay.

The log knows a pod's class, cards and controller. It does not know its volumes, its affinities, and
PodDisruptionBudgets: a reader of the API server adds reasons to stay, and budgets.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from joulie_bus.events import PodAsk
from joulie_extender.defragment.fleet import NOT_ALLOWED, Fleet, Need, Occupant
from joulie_extender.defragment.search import Budget, Usable
from joulie_extender.gpu.demand import PoolKinds, share_of, usable_now
from joulie_extender.gpu.free_cards import (
    Layout,
    free_milli,
    kinds_of,
    layout_of,
    rests_of,
    units_of,
)
from joulie_extender.gpu.models import Aliases
from joulie_extender.gpu.shapes import CARD
from joulie_projections.pods.load import load_of
from joulie_projections.state.cards import CardState, owner_of
from joulie_projections.state.gpu_arrivals import shape_of
from joulie_projections.state.state import ClusterState, NodeState, PodState
from joulie_projections.twin.arrays import Bools, Ints
from joulie_projections.twin.columns import TwinColumns

MIB = 2**20
_SHARED = "pods request units of the cards of its node"


class Judged(NamedTuple):
    """What a reader of the API server adds."""

    stays: Mapping[str, str] = {}  # why, by the uid of a pod
    budgets: Sequence[Budget] = ()


class Movable(NamedTuple):
    names: Sequence[str]  # of the rows
    fleet: Fleet
    usable: Usable
    occupants: Sequence[Occupant]
    stays: Mapping[str, str]  # why, by the uid of each other pod on a node with cards


def movable(state: ClusterState, aliases: Aliases, judged: Judged = Judged()) -> Movable:  # noqa: B008
    columns = TwinColumns.of_state(state)
    kinds, layout = kinds_of(columns, aliases), layout_of(columns.cards)
    names = sorted(name for name, node in state.nodes.items() if node.present)
    rows = {name: row for row, name in enumerate(names)}
    place = layout.row_of(np.array([columns.rows[name] for name in names], np.int64))
    is_shared = _are_shared(columns, place)
    fleet = _without_shared(_fleet(state, columns, names, place), is_shared)
    cards = _CardPlaces(columns, layout, place)
    occupants, stays = list[Occupant](), dict[str, str]()
    for uid, pod in sorted(state.pods.items()):
        row = rows.get(pod.node)
        if row is None or pod.finished:
            continue
        held = cards.of(uid, row)
        why = judged.stays.get(uid) or why_it_stays(pod.pod)
        if not why:
            why = _SHARED if is_shared[row] else _unknown_cards(pod, held, state)
        if not why:
            need = need_of(pod.pod, kinds, len(held))
            occupants.append(Occupant(uid, row, need, tuple(slot for _, slot in held)))
        elif place[row] >= 0:
            stays[uid] = why
    usable = Usable(*usable_now(columns.gpu_demand, kinds))
    return Movable(names, fleet, usable, occupants, stays)


def why_it_stays(pod: PodAsk) -> str:
    """As far as the log tells."""
    if pod.exempt:
        return "it stays with its node, or is critical for the system"
    if pod.workload == "performance":
        return "it is of class performance"
    if not pod.replaced_by:
        return "no controller is known that puts an equal pod elsewhere"
    if pod.placement != "general":
        return "it may run on nodes of one profile only"
    return "it asks for linked cards" if pod.gpu.topology else ""


def need_of(pod: PodAsk, kinds: PoolKinds, cards: int) -> Need:
    memory = -(-pod.memory_bytes // MIB)
    shape = shape_of(pod)
    if shape is None or not cards:
        nothing = (0,) * max(1, len(kinds.models))
        return Need(load_of(pod).cpu_milli, memory, 0, nothing)
    allowed = kinds.allowed(pod.gpu.model).tolist()
    shares = list[int]()
    for is_allowed, total_mb in zip(allowed, kinds.total_mb, strict=True):
        share = share_of(shape.share, shape.mb, total_mb)
        is_enough = is_allowed and share <= CARD and total_mb >= pod.gpu.vram_mb
        shares.append(share if is_enough else NOT_ALLOWED)
    return Need(load_of(pod).cpu_milli, memory, cards, tuple(shares))


def _unknown_cards(pod: PodState, held: Sequence[tuple[str, int]], state: ClusterState) -> str:
    shape = shape_of(pod.pod)
    if (shape.cards if shape else 0) != len(held):
        return "the cards that it holds are not known"
    if any(_has_stranger(state.gpus[uuid]) for uuid, _ in held):
        return "a pod without a claim is on its card"
    return ""


def _has_stranger(card: CardState) -> bool:
    owner = owner_of(card)
    return bool(owner) and owner not in card.claims


class _CardPlaces:
    """Where the cards that a pod holds are in the rows of its node."""

    def __init__(self, columns: TwinColumns, layout: Layout, place: Ints) -> None:
        self._cards, self._place = columns.cards, place
        at = zip(layout.place.tolist(), layout.row.tolist(), layout.slot.tolist(), strict=True)
        self._of = {card: (row, slot) for card, row, slot in at}

    def of(self, uid: str, row: int) -> list[tuple[str, int]]:
        """The UUID of each of these cards, and its column."""
        places = [(card, self._of.get(card, (-1, -1))) for card in self._cards.held_by([uid])]
        here = self._place[row]
        return [(self._cards.uuids[card], slot) for card, (at, slot) in places if at == here >= 0]


def _fleet(state: ClusterState, columns: TwinColumns, names: Sequence[str], place: Ints) -> Fleet:
    """A node without cards has a row of zeros."""
    layout, cards = layout_of(columns.cards), columns.cards
    nodes = [state.nodes[name] for name in names]
    milli = free_milli(columns, np.array([columns.rows[name] for name in names], np.int64))
    allocatable = np.array([node.cpu_milli - node.load.cpu_milli for node in nodes], np.int64)
    states = [cards.states[at] for at in layout.place.tolist()]
    at = np.where(place >= 0, place, len(layout.nodes))  # the last row has no card

    def matrix(values: Ints | Sequence[int]) -> Ints:
        found = np.zeros((len(layout.nodes) + 1, layout.width), np.int64)
        found[layout.row, layout.slot] = values
        return found[at]

    return Fleet(
        model=np.append(layout.model, 0)[at],
        free_milli=milli,
        held_back=np.maximum(milli - allocatable, 0),
        free_memory=np.array(_free_memory(state, names), np.int64),
        rest=matrix(rests_of(cards)[layout.row, layout.slot]),
        users=matrix([_users(card) if card else 0 for card in states]),
        whole=matrix([CARD if card and card.healthy else 0 for card in states]),
        group=matrix(cards.ints("link")[layout.place]),
        is_open=np.array([_is_open(node) for node in nodes], np.bool_),
    )


def _are_shared(columns: TwinColumns, place: Ints) -> Bools:
    """Whether pods request units of the cards of these nodes, by time or as slices."""
    units = units_of(columns)
    return np.zeros(len(place), np.bool_) if units is None else np.append(units, CARD)[place] < CARD


def _without_shared(fleet: Fleet, is_shared: Bools) -> Fleet:
    """Which part of a shared card is free is not known, and no pod moves there."""
    whole = ~is_shared
    rest, cards = fleet.rest * whole[:, None], fleet.whole * whole[:, None]
    return fleet._replace(rest=rest, whole=cards, is_open=fleet.is_open & whole)


def _users(card: CardState) -> int:
    owner = owner_of(card)
    return len({*card.claims, owner} if owner else card.claims)


def _free_memory(state: ClusterState, names: Sequence[str]) -> list[int]:
    """MiB, by the requests of pods; none where the node's memory is unknown."""
    used: dict[str, int] = {}
    for pod in state.pods.values():
        if pod.node and not pod.finished:
            used[pod.node] = used.get(pod.node, 0) + pod.pod.memory_bytes
    return [(state.nodes[name].memory_bytes - used.get(name, 0)) // MIB for name in names]


def _is_open(node: NodeState) -> bool:
    """Whether a pod of class standard may move there now."""
    is_up = node.ready and node.schedulable and not node.power_state
    return is_up and not (node.draining or node.closed_at)
