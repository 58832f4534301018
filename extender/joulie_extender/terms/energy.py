"""The terms of the energy score, in watts. The score falls with their sum, and is not a sum."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from joulie_extender.gpu.expected_loss import UNUSABLE, losses_of
from joulie_extender.gpu.fit import FRAGMENTATION, PackingWeights
from joulie_extender.gpu.free import asks_no_card, free_cards, free_cores_of, used_cards_w
from joulie_extender.terms.cards_kept import CardsKeptSettings
from joulie_extender.terms.freshness import NEUTRAL
from joulie_extender.terms.power import PowerWeights
from joulie_extender.terms.term import Term, TermInput
from joulie_projections.hardware.card_power import CURVES
from joulie_projections.hardware.guesses import IDLE_CARD_SHARE, IDLE_CPU_SHARE
from joulie_projections.twin.arrays import Bools, Floats, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.energy_score import (
    FORMULA,
    EnergyNodes,
    EnergyScores,
    energy_scores,
)
from joulie_projections.twin.power import cores_of, memory_factor

LOST_GPU_W = 600.0  # of a GPU that later pods lose, when all GPUs are in use


@dataclass(frozen=True, kw_only=True)
class EnergyWeights(CardsKeptSettings, PowerWeights, PackingWeights):
    energy_formula: float = FORMULA


def energy_of(asked: TermInput, settings: EnergyWeights) -> EnergyScores:
    pod = asked.pod
    keeps_cards = settings.cpu_pods_on_gpu_nodes == "avoid" and asks_no_card(pod)
    nodes, cards, known = _nodes(asked, settings), pod.gpu_milli / 1000, asked.basis > NEUTRAL
    return energy_scores(nodes, cores_of(pod), cards, keeps_cards, known)


def score_by_watts(asked: TermInput, settings: EnergyWeights) -> Floats:
    return asked.once(energy_of, settings).score


class _Watts(Term[EnergyWeights]):
    """A term with the name of its column in `EnergyScores`."""

    unit = "watts"
    settings = EnergyWeights
    is_summand = False

    def value(self, asked: TermInput, settings: EnergyWeights) -> Floats | None:
        found: Floats | None = getattr(asked.once(energy_of, settings), self.name)
        return found


class EnergyAdded(_Watts):
    name = "marginal_w"
    head = "added watts"
    meaning = "The power that the pod itself adds"


class FirstProcess(_Watts):
    name = "process_w"
    head = "first process"
    meaning = "The power that the first process adds to idle cards, of a model that was measured"


class FirstCard(_Watts):
    name = "first_card_w"
    head = "first card"
    meaning = "A share of the power of the other cards of a node, none of which is in use"


class Activation(_Watts):
    name = "activation_w"
    head = "activation"
    meaning = "The idle power that the pod keeps on, of a node that could otherwise sleep"


class Fragmentation(_Watts):
    name = "fragmentation_w"
    head = "fragments"
    meaning = "For free cores without free cards, and the reverse"


class LostGpusWatts(_Watts):
    name = "lost_gpus_w"
    head = "lost GPUs"
    meaning = "For the GPUs that later pods lose there, by how many of all GPUs are in use"


class CardReserve(_Watts):
    name = "reserve_w"
    head = "cards kept"
    meaning = "For free cards, and cores beside them, that a pod without cards would block"


def _nodes(asked: TermInput, settings: EnergyWeights) -> EnergyNodes:
    """Only for the candidates: most snapshots answer few requests."""
    twin_columns, rows, pod = asked.twin_columns, asked.rows, asked.pod
    names = ("cores", "gpus", "cpu_max_w", "pods_cpu_w", "pue")
    cores, cards, cpu_w, pods_w, pue = (twin_columns.floats(each).take(rows) for each in names)
    rates = settings.coefficients
    power = _cards(asked, cards, settings)
    is_polled = twin_columns.columns["is_polled"].take(rows)
    return EnergyNodes(
        free_cores=free_cores_of(cores, cpu_w, pods_w),
        free_cards=free_cards(twin_columns, rows),
        cores=cores,
        cards=cards,
        idle_w=IDLE_CPU_SHARE * cpu_w + power.idle_w,
        w_per_core=(rates.cpu * memory_factor(pod, rates)) * (cpu_w / np.maximum(cores, 1.0)),
        w_per_card=power.w_per_card,
        is_empty=_are_empty(twin_columns, rows, pods_w),
        pue=np.where(is_polled, np.maximum(1.0, pue), 1.0),
        process_w=power.process_w,
        idle_card_w=power.idle_card_w,
        lost_gpus_w=_lost_gpus_w(asked, cards, settings),
    )


def _are_empty(twin_columns: TwinColumns, rows: Ints, pods_w: Floats) -> Bools:
    """Whether the nodes could sleep. Pods of DaemonSets and static ones go with their node."""
    found: Bools = (pods_w == 0) & (used_cards_w(twin_columns, rows) == 0)
    return found | twin_columns.columns["daemons_only"].take(rows)


def _lost_gpus_w(asked: TermInput, cards: Floats, settings: EnergyWeights) -> Floats | None:
    """None if the loss is known of no candidate: neither agent nor DRA reports cards.

    A lost GPU is missed once the cluster is full: its price rises with the square of the share of
    the GPUs in use. A card of a model that pods name has the full price from the beginning: at low
    power it would be taken first. The price of an unknown loss does not fall either.
    """
    gpu, pod, columns = settings.gpu, asked.pod, asked.twin_columns
    if gpu.packing != FRAGMENTATION or not cards.any():
        return None
    losses = losses_of(pod, columns, asked.rows, gpu)
    loss = losses.expected
    is_known = loss < UNUSABLE
    if not is_known.any():
        return None
    if asks_no_card(pod):
        loss = np.where(is_known, loss, cards)  # at most; 0 without cards
    price = LOST_GPU_W * (losses.share_in_use * losses.share_in_use)
    found: Floats = np.where(is_known, price, LOST_GPU_W) * loss
    found += (LOST_GPU_W - price) * losses.named
    return found


class _CardPower(NamedTuple):
    idle_w: Floats  # of all cards of the node
    w_per_card: Floats
    process_w: Floats | float = 0.0
    idle_card_w: Floats | float = 0.0


def _cards(asked: TermInput, cards: Floats, settings: EnergyWeights) -> _CardPower:
    """By the curve of a measured model, else by a line up to the rated power."""
    rows, columns, rates = asked.rows, asked.twin_columns, settings.coefficients
    card_w, curves = columns.floats("gpu_max_w").take(rows), columns.ints("card_curve").take(rows)
    is_performance = asked.pod.workload == "performance"
    rate = rates.gpu_performance if is_performance else rates.gpu_standard
    idle_w = IDLE_CARD_SHARE * (cards * card_w)
    w_per_card = np.where(cards > 0, card_w, 0.0) * rate
    if not curves.any():
        return _CardPower(idle_w, w_per_card)
    curve = CURVES.watts(curves, rate)
    return _CardPower(
        np.where(curve.is_measured, cards * curve.idle_w, idle_w),
        np.where(curve.is_measured, curve.work_w, w_per_card),
        curve.process_w,
        curve.idle_w,
    )
