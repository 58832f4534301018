"""A plan of moves as it is carried out: a pod is evicted, and a policy places its replacement.

The node that the pod leaves takes no pod meanwhile.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from joulie_extender.defragment.fleet import Move
from joulie_extender.gpu.fragmentation import NEVER
from joulie_extender.gpu.pool import Pool
from joulie_extender.gpu.shapes import Shape
from joulie_projections.twin.arrays import Floats, Ints
from joulie_simulator.gpu_packing.published_policies import Packing


class Packed(NamedTuple):
    """What a policy has packed: it has the same pool."""

    policy: Packing
    pool: Pool
    users: Ints  # pods on each card
    shapes: Sequence[Shape]  # of the pods, by their uid


def carry_out(packed: Packed, moves: Iterable[Move]) -> None:
    """Ends after a pod that fits nowhere else; it returns to its node."""
    for row, group in groupby(moves, lambda move: move.occupant.row):
        if not all([_moved(packed, move, row) for move in group]):
            return


def _moved(packed: Packed, move: Move, closed: int) -> bool:
    shape = packed.shapes[int(move.occupant.uid)]
    _leave(packed, move, shape)
    costs = packed.policy.costs(shape)
    elsewhere: Floats = costs.copy()
    elsewhere[closed] = NEVER
    fits = bool((elsewhere < NEVER).any())
    _enter(packed, shape, elsewhere if fits else costs)
    return fits


def _leave(packed: Packed, move: Move, shape: Shape) -> None:
    pool, row, cards = packed.pool, move.occupant.row, list(move.occupant.cards)
    pool.free_milli[row] += shape.milli
    pool.free_memory[row] += shape.memory_mib
    pool.rest[row, cards] += shape.share
    packed.users[row, cards] -= 1
    packed.policy.left(int(move.occupant.uid), row, cards)


def _enter(packed: Packed, shape: Shape, costs: Floats) -> None:
    policy = packed.policy
    row = policy.row(costs)
    cards = list(policy.cards(shape, row))
    packed.pool.take(shape, row, cards)
    packed.users[row, cards] += 1
    policy.changed(row)
    policy.arrived(shape)
