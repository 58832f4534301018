"""The power of a pool of GPU nodes by the article's formula.

A card with a pod takes its peak, and one without its idle power. Cores are in sockets of 32: the
sockets that the requested cores fill take their peak, and the others their idle power. Lettich et
al., arXiv 2412.17484. The models of openb are those that the article names for its codes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from joulie_bus.events import HardwareDiscovered
from joulie_extender.gpu.fragmentation import NEVER, Costs
from joulie_extender.gpu.pool import Pool, PoolNode
from joulie_extender.gpu.shapes import CARD, Shape
from joulie_projections.twin.arrays import Floats, Ints
from joulie_simulator.hardware.shapes import SHAPES

SOCKET = 32_000  # millicores


class Power(NamedTuple):
    idle_w: int
    max_w: int


CPU = Power(15, 120)
UNKNOWN = Power(30, 300)
CARDS = {
    "P100": Power(25, 250),
    "V100M16": Power(30, 300),
    "V100M32": Power(30, 300),
    "T4": Power(10, 70),
    "A10": Power(30, 150),
    "G2": Power(30, 150),
    "G3": Power(50, 400),
} | {
    shape.cards.model: Power(shape.cards.idle_w, shape.cards.max_w)
    for shape in SHAPES
    if shape.cards
}


class Described(NamedTuple):
    """What the product knows of a node before the first pod."""

    hardware: HardwareDiscovered
    idle_w: int


def hardware_of(name: str, node: PoolNode) -> Described:
    card, sockets = CARDS.get(node.model, UNKNOWN), -(-node.milli // SOCKET)
    hardware = HardwareDiscovered(
        node=name,
        cpu_model="",
        cpu_sockets=sockets,
        cpu_cores=node.milli // 1000,
        cpu_max_mw_per_socket=CPU.max_w * 1000,
        gpu_model=node.model,
        gpu_count=node.cards,
        gpu_max_mw=card.max_w * 1000,
    )
    return Described(hardware, sockets * CPU.idle_w + node.cards * card.idle_w)


def watts_of(pool: Pool) -> Floats:
    """One value per node."""
    idle, most = _cards(pool, pool.model)
    in_use = pool.cards - (pool.rest == CARD).sum(1)
    watts: Floats = _cpu_watts(pool.milli, pool.milli - pool.free_milli)
    watts += in_use * most + (pool.cards - in_use) * idle
    return watts


def added_watts(pool: Pool, shape: Shape, rows: Ints) -> Costs:
    """What the pod adds to each node; cards with pods on them come first."""
    milli = pool.milli[rows]
    taken = milli - pool.free_milli[rows]
    idle, most = _cards(pool, pool.model[rows])
    rest = pool.rest[rows]
    started = 0
    if shape.cards:
        shared = ((rest >= shape.share) & (rest < CARD)).sum(1)
        started = np.maximum(0, shape.cards - shared)
    added = _cpu_watts(milli, taken + shape.milli) - _cpu_watts(milli, taken)
    watts = added + started * (most - idle)
    return Costs(np.where(pool.fits(shape, rows), watts, NEVER), np.zeros(len(rows), np.int64))


def _cpu_watts(milli: Ints, taken: Ints) -> Floats:
    sockets, in_use = -(-milli // SOCKET), -(-taken // SOCKET)
    return np.asarray(CPU.idle_w * (sockets - in_use) + CPU.max_w * in_use, np.float64)


def _cards(pool: Pool, model: Ints) -> tuple[Ints, Ints]:
    known: Sequence[Power] = [CARDS.get(name, UNKNOWN) for name in pool.models]
    return (
        np.array([power.idle_w for power in known])[model],
        np.array([power.max_w for power in known])[model],
    )
