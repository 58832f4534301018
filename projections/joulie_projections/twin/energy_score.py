"""The energy score: the watts that a pod adds to each node, with everything that it keeps awake.

Arrays in, arrays out, one value per node; the extender and the simulator share it. A row
depends on the others only through the cheapest row, which gets 100 points.

    cost       = marginal + process + first card + activation + fragmentation + reserve, in watts
    activation = idle watts on an empty node; on any other a quarter of them, times the share of
                 its cores that stays free plus that of its cards
    process    = on cards of a measured model: the watts of the first process on each idle card
    first card = likewise: a quarter of the idle watts of the other cards, if none of them is in use
    score      = 100 x 250 / (250 + cost - lowest cost)

Where it is known what later pods lose of the GPUs, that loss in watts replaces `fragmentation`. A
pod with cards then counts a tenth of `activation`: other pods will share the node, and the loss has
what its free cards are worth.

Best fit follows from `activation`: an empty node could sleep, and a nearly empty one could soon.
"""

from typing import NamedTuple

import numpy as np

from joulie_bus.core.formats import in_force
from joulie_projections.twin.arrays import Bools, Floats, Ints

HALF_W = 250.0  # watts above the lowest cost at which the score is half
# Shares of the idle watts of a node:
BEGUN_SHARE = 0.25  # for free cores, and for free cards, of a node with pods
FIRST_CARD_SHARE = 0.25  # of the idle cards of a node, for the first card in use
WAKE_SHARE = 0.25  # to wake a sleeping node
FRAGMENT_SHARE = 0.25  # the most that unbalanced free cores and cards cost
HOST_SHARE = 0.05  # for a pod without cards on a node whose cards are all in use
RESERVE_W = 5_000.0  # more than any activation: a node with free cards, for a pod without cards
ROUNDING = 1e-6  # cards: rounding errors of sums of shares
SHARED_ACTIVATION = 0.1  # of it, for a pod with cards, where the loss of GPUs is known
FORMULA = float(in_force("formula"))  # entries name it
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
    is_empty: Bools  # no pod but those of DaemonSets, and static ones: the node could sleep
    is_asleep: Bools | bool = False
    pue: Floats | float = 1.0  # watts including cooling, per watt
    process_w: Floats | float = 0.0  # of the first process on an idle card; 0: not measured
    idle_card_w: Floats | float = 0.0  # of one card; 0: not measured
    lost_gpus_w: Floats | None = None  # for the GPUs that later pods lose; None: that is not known


class EnergyScores(NamedTuple):
    score: Floats  # 0 to 100, higher is better
    marginal_w: Floats  # of the pod itself
    activation_w: Floats  # idle watts of a node that could otherwise sleep, and of its waking
    fragmentation_w: Floats  # for free cores without free cards, and the reverse
    reserve_w: Floats  # for cards, and cores beside them, that a pod without cards would block
    lost_gpus_w: Floats | None = None  # for the GPUs that later pods lose
    process_w: Floats | None = None  # of the first process on idle cards
    first_card_w: Floats | None = None  # of the other cards, which could sleep


class Ask(NamedTuple):
    cores: float
    cards: float
    keeps_cards: bool  # asks for no card, and keeps off nodes with free ones


class Overheads(NamedTuple):
    """Watts beside those of the pod itself; the reserve without cooling."""

    activation: Floats
    fragmentation: Floats
    reserve: Floats


def energy_scores(
    nodes: EnergyNodes,
    cores: float,
    cards: float,
    keeps_cards: bool = True,
    known: Bools | None = None,
) -> EnergyScores:
    """Scores nodes for a pod. With `known`, only its rows compete for the lowest cost."""
    asked = Ask(cores, cards, keeps_cards and not cards)
    over = _overheads_of(nodes, asked)
    marginal = nodes.pue * (cores * nodes.w_per_core + cards * nodes.w_per_card)
    activation, fragmentation = nodes.pue * over.activation, nodes.pue * over.fragmentation
    cost = marginal + activation + fragmentation + over.reserve
    if nodes.lost_gpus_w is not None:
        cost += nodes.lost_gpus_w
    process = first_card = None
    if cards and np.any(nodes.process_w):
        process, first_card = _of_idle_cards(nodes, cards)
        cost += process + first_card
    lowest = np.min(cost, initial=np.inf, where=True if known is None else known)
    above = np.maximum(cost - lowest, 0.0) if np.isfinite(lowest) else np.zeros(len(cost))
    score = 100 * HALF_W / (HALF_W + above)
    return EnergyScores(
        score,
        marginal,
        activation,
        fragmentation,
        over.reserve,
        nodes.lost_gpus_w,
        process,
        first_card,
    )


def _overheads_of(nodes: EnergyNodes, asked: Ask) -> Overheads:
    return _overheads(nodes, asked) if nodes.lost_gpus_w is None else _beside_loss(nodes, asked)


def _beside_loss(nodes: EnergyNodes, asked: Ask) -> Overheads:
    """Where it is known what later pods lose of the GPUs."""
    nothing = np.zeros(len(nodes.idle_w))
    activation = _activation_w(nodes, _begun(*_left(nodes, asked)))
    keeps_cards = asked.keeps_cards and not np.all(np.asarray(nodes.cards) > 0)
    return Overheads(
        activation=SHARED_ACTIVATION * activation if asked.cards else activation,
        fragmentation=nothing,
        reserve=_reserve_w(nodes) if keeps_cards else nothing,
    )


def _overheads(nodes: EnergyNodes, asked: Ask) -> Overheads:
    cores_left, cards_left = _left(nodes, asked)
    apart = (np.asarray(nodes.cards) > 0) * np.abs(cores_left - cards_left)
    return Overheads(
        activation=_activation_w(nodes, _begun(cores_left, cards_left)),
        fragmentation=nodes.idle_w * (FRAGMENT_SHARE * apart if asked.cards else 0.0),
        reserve=_reserve_w(nodes) if asked.keeps_cards else np.zeros(len(nodes.idle_w)),
    )


def _left(nodes: EnergyNodes, asked: Ask) -> tuple[Floats, Floats]:
    """The shares of the cores and of the cards that are free after the placement."""
    cores_left = _share_left(nodes.free_cores, asked.cores, nodes.cores)
    return cores_left, _share_left(nodes.free_cards, asked.cards, nodes.cards)


def _begun(cores_left: Floats, cards_left: Floats) -> Floats:
    return BEGUN_SHARE * (cores_left + cards_left)


def _reserve_w(nodes: EnergyNodes) -> Floats:
    host: Floats = (np.asarray(nodes.cards) > 0) * (HOST_SHARE * nodes.idle_w)
    return host + _blocked_w(nodes)


def _share_left(free: Column, asked: float, capacity: Column) -> Floats:
    """Of the capacity, after the placement; 0 without any."""
    share: Floats = np.maximum(free - asked, 0.0) / np.maximum(capacity, 1)
    return np.minimum(share, 1.0)


def _activation_w(nodes: EnergyNodes, begun: Floats) -> Floats:
    """`begun` is the share of the idle watts that a node with pods costs."""
    share: Floats = np.where(nodes.is_empty, 1.0, begun) + WAKE_SHARE * np.asarray(nodes.is_asleep)
    return nodes.idle_w * share


def _blocked_w(nodes: EnergyNodes) -> Floats:
    blocked = RESERVE_W + nodes.free_cards * nodes.w_per_card
    return np.where(np.asarray(nodes.free_cards) > ROUNDING, blocked, 0.0)


def _of_idle_cards(nodes: EnergyNodes, cards: float) -> tuple[Floats, Floats]:
    """A part of a card goes on a card that is in use, if one has room for it."""
    free = np.asarray(nodes.free_cards)
    whole = np.floor(free + ROUNDING)
    begun = np.where(free - whole >= cards - ROUNDING, 0.0, np.ceil(cards - ROUNDING))
    process: Floats = nodes.pue * (begun * nodes.process_w)
    has_none = ~nodes.is_empty & (whole >= np.asarray(nodes.cards))
    others = nodes.idle_card_w * np.maximum(whole - begun, 0.0)
    first: Floats = nodes.pue * np.where(has_none, FIRST_CARD_SHARE * others, 0.0)
    return process, first
