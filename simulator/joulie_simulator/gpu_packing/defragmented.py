"""How many unusable GPUs a plan of few moves makes usable, in the published simulation.

The pods that were dropped do not fit; what of them fits after the moves is the plan's value. The
plan is carried out, too: by the policy itself, and by Joulie in a cluster that the policy filled.
"""

import copy
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from joulie_extender.defragment.fleet import NOT_ALLOWED, Fleet, Move, Need, Occupant
from joulie_extender.defragment.search import Usable, planned_moves, summary_of
from joulie_extender.gpu.fragmentation import usable_by
from joulie_extender.gpu.pool import Pool
from joulie_extender.gpu.shapes import CARD, Shape
from joulie_projections.twin.arrays import Ints
from joulie_simulator.gpu_packing.carried_out import Packed, carry_out
from joulie_simulator.gpu_packing.published import Arriving, placed
from joulie_simulator.gpu_packing.published_policies import Joulie, Packing

PER_CENT = 100  # one pod of so many may be moved


class DefragmentedRow(NamedTuple):
    policy: str
    seed: int
    arrived: int  # percent of all GPUs
    pods: int
    moved: int
    free: float  # GPUs
    unusable: float  # of these
    unusable_after: float
    unusable_carried_out: float  # by the policy itself
    unusable_by_joulie: float  # a policy of Joulie is itself
    cards: int  # wholly free and of use
    cards_after: int
    waiting: float  # GPUs of dropped pods that fit after the moves


class _Filled(NamedTuple):
    users: Ints
    held: list[Occupant]
    shapes: list[Shape]  # of these
    dropped: list[Shape]
    arrived: Counter[Shape]


def defragmented(
    name: str, policy: Packing, pool: Pool, pods: Sequence[Shape], run: tuple[int, int]
) -> DefragmentedRow:
    """`run` is the seed, and the percent of the GPUs that arrive before the plan is made."""
    seed, level = run
    joulie = policy if isinstance(policy, Joulie) else Joulie(pool, pods, seed)
    filled = _fill(policy, joulie, pool, Arriving(pods, seed), level)
    fleet, usable = _fleet(pool, filled.users), _usable(pool, filled.arrived)
    before, most = summary_of(fleet, usable), len(filled.held) // PER_CENT
    packed = Packed(policy, pool, filled.users, filled.shapes)
    # The plan changes the pool.
    packs = [copy.deepcopy(packed._replace(policy=each)) for each in (policy, joulie)]
    moves = planned_moves(fleet, usable, filled.held, most)
    after = summary_of(fleet, usable)
    by_itself, by_joulie = (_unusable_after(each, usable, moves) for each in packs)
    return DefragmentedRow(
        *(name, seed, level, len(filled.held), len(moves)),
        *(round(before.free, 2), round(before.unusable, 2), round(after.unusable, 2)),
        unusable_carried_out=round(by_itself, 2),
        unusable_by_joulie=round(by_joulie, 2),
        cards=before.cards,
        cards_after=after.cards,
        waiting=_fitting(pool, filled.dropped) / CARD,
    )


def _unusable_after(packed: Packed, usable: Usable, moves: Sequence[Move]) -> float:
    carry_out(packed, moves)
    return summary_of(_fleet(packed.pool, packed.users), usable).unusable


def _fill(policy: Packing, joulie: Joulie, pool: Pool, arriving: Arriving, level: int) -> _Filled:
    """Joulie follows what another policy places."""
    found = _Filled(np.zeros_like(pool.rest), [], [], [], Counter())
    asked = 0
    for shape in arriving:
        place = placed(policy, pool, shape)
        if place is None:
            found.dropped.append(shape)
        else:
            uid = str(len(found.held))
            found.users[place.row, list(place.cards)] += 1
            found.held.append(Occupant(uid, place.row, _need(pool, shape), tuple(place.cards)))
            found.shapes.append(shape)
        if policy is not joulie:
            joulie.follow(shape, *((None, ()) if place is None else place))
        found.arrived[shape] += 1
        asked += shape.gpu_milli
        if asked * 100 >= level * pool.capacity:
            break
    return found


def _need(pool: Pool, shape: Shape) -> Need:
    share = shape.share if shape.cards else 0
    shares = np.where(pool.allowed(shape.models), share, NOT_ALLOWED)
    return Need(shape.milli, shape.memory_mib, shape.cards, tuple(shares.tolist()))


def _fleet(pool: Pool, users: Ints) -> Fleet:
    """It shares its arrays with the pool."""
    places = np.arange(pool.rest.shape[1])
    return Fleet(
        model=pool.model,
        free_milli=pool.free_milli,
        held_back=np.zeros_like(pool.free_milli),
        free_memory=pool.free_memory,
        rest=pool.rest,
        users=users,
        whole=np.where(places < pool.cards[:, None], CARD, 0),
        group=np.zeros_like(pool.rest),
        is_open=np.ones(len(pool.nodes), np.bool_),
    )


def _usable(pool: Pool, arrived: Counter[Shape]) -> Usable:
    """Of all shapes that have arrived."""
    counts = {shape: count for shape, count in arrived.items() if shape.cards}
    total = sum(counts.values())
    wanted = [
        (shape, np.where(pool.allowed(shape.models), count / total, 0.0))
        for shape, count in counts.items()
    ]
    return Usable(*usable_by(wanted, len(pool.models), int(pool.cards.max())))


def _fitting(pool: Pool, dropped: Sequence[Shape]) -> int:
    """Milli of GPUs, the largest first, each on the first node and cards that fit."""
    found, rows = 0, np.arange(len(pool.nodes))
    for shape in sorted(dropped, key=lambda each: -each.gpu_milli):
        at = np.flatnonzero(pool.fits(shape, rows))
        if len(at):
            row = int(at[0])
            cards: list[int] = np.flatnonzero(pool.rest[row] >= shape.share).tolist()
            pool.take(shape, row, cards[: shape.cards])
            found += shape.gpu_milli
    return found
