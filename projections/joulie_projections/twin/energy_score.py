"""The energy score: the watts that a pod adds to each node, with everything that it keeps awake.

Pure: arrays in, arrays out, one value per node; the extender and the simulator share it. A row
depends on the others only through the cheapest row, which gets 100 points.

    cost       = marginal + activation + fragmentation + reserve, in watts
    activation = idle watts x 1 on an empty node, x half the free share on any other
    score      = 100 x 250 / (250 + cost - lowest cost)

Best fit follows from `activation`: an empty node could sleep, and a nearly empty one could soon.
"""

from typing import NamedTuple

import numpy as np

from joulie_projections.twin.arrays import Bools, Floats, Ints

HALF_W = 250.0  # watts above the lowest cost at which the score is half
BEGUN_SHARE = 0.5  # of the idle watts: the most that a node with pods costs
WAKE_SHARE = 0.25  # of the idle watts: what it costs to wake a sleeping node
FRAGMENT_SHARE = 0.5  # of the idle watts: the most that unbalanced free cores and cards cost
RESERVE_W = 5_000.0  # more than any activation: a node with free cards, for a pod without cards
CLOSE = 1e-6  # cards: rounding errors of sums of shares
Column = Floats | Ints


class EnergyNodes(NamedTuple):
    """One value per node in each column."""

    free_cores: Column
    free_cards: Column
    cores: Column  # capacity
    cards: Column  # capacity
    idle_w: Floats  # of the node without pods, with its cards
    w_per_core: Floats  # dynamic watts of one core that a pod asks for
    w_per_card: Floats
    is_empty: Bools  # no pod: the node could sleep
    is_asleep: Bools | bool = False
    pue: Floats | float = 1.0  # watts including cooling, per watt


class EnergyScores(NamedTuple):
    score: Floats  # 0 to 100, higher is better
    marginal_w: Floats  # of the pod itself
    activation_w: Floats  # idle watts of a node that could otherwise sleep, and of its waking
    fragmentation_w: Floats  # for free cores without free cards, and the reverse
    reserve_w: Floats  # for free cards that a pod without cards would block


def energy_scores(
    nodes: EnergyNodes,
    cores: float,
    cards: float,
    keeps_cards: bool = True,
    known: Bools | None = None,
) -> EnergyScores:
    """Scores nodes for a pod. With `known`, only its rows compete for the lowest cost."""
    marginal = nodes.pue * (cores * nodes.w_per_core + cards * nodes.w_per_card)
    activation = nodes.pue * _activation_w(nodes)
    fragmentation = nodes.pue * _fragmentation_w(nodes, cores, cards)
    reserve = _reserve_w(nodes, cards if keeps_cards else 1.0)
    cost = marginal + activation + fragmentation + reserve
    lowest = np.min(cost, initial=np.inf, where=True if known is None else known)
    above = np.maximum(cost - lowest, 0.0) if np.isfinite(lowest) else np.zeros(len(cost))
    score = 100 * HALF_W / (HALF_W + above)
    return EnergyScores(score, marginal, activation, fragmentation, reserve)


def _activation_w(nodes: EnergyNodes) -> Floats:
    begun = BEGUN_SHARE * np.minimum(_free_core_share(nodes), _free_card_share(nodes))
    share: Floats = np.where(nodes.is_empty, 1.0, begun) + WAKE_SHARE * np.asarray(nodes.is_asleep)
    return nodes.idle_w * share


def _fragmentation_w(nodes: EnergyNodes, cores: float, cards: float) -> Floats:
    """Free cards cannot be used without free cores beside them."""
    if not cards:
        return np.zeros(len(nodes.idle_w))
    cores_left = _free_core_share(nodes) - cores / np.maximum(nodes.cores, 1)
    cards_left = _free_card_share(nodes) - cards / np.maximum(nodes.cards, 1)
    apart = np.minimum(np.abs(cores_left - cards_left), 1.0)
    wasted: Floats = nodes.idle_w * (FRAGMENT_SHARE * apart)
    return np.where(np.asarray(nodes.cards) > 0, wasted, 0.0)


def _reserve_w(nodes: EnergyNodes, cards: float) -> Floats:
    if cards:
        return np.zeros(len(nodes.idle_w))
    blocked = RESERVE_W + nodes.free_cards * nodes.w_per_card
    return np.where(np.asarray(nodes.free_cards) > CLOSE, blocked, 0.0)


def _free_core_share(nodes: EnergyNodes) -> Floats:
    share: Floats = nodes.free_cores / np.maximum(nodes.cores, 1)
    return share


def _free_card_share(nodes: EnergyNodes) -> Floats:
    """1 for a node without cards, so that its cores decide."""
    share: Floats = nodes.free_cards / np.maximum(nodes.cards, 1)
    return np.where(np.asarray(nodes.cards) > 0, share, 1.0)
