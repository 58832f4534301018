"""The inputs of the energy score from the twins' columns, and the nodes with free cards.

Free cores and cards follow from the requests of the bound pods.
"""

import numpy as np

from joulie_bus.events import PodAsk
from joulie_extender.catalogue.weights import Weights
from joulie_extender.gpu.free import asks_no_card, free_cards, free_cores_of, used_cards_w
from joulie_projections.hardware.guesses import IDLE_CARD_SHARE, IDLE_CPU_SHARE
from joulie_projections.twin.arrays import Bools, Floats, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.energy_score import CLOSE, EnergyNodes, EnergyScores, energy_scores
from joulie_projections.twin.power import cores_of, memory_factor

LEAD = 20.0  # points: kube-scheduler's own scores can outweigh a smaller lead


def energy_of(
    pod: PodAsk, twin_columns: TwinColumns, rows: Ints, known: Bools, weights: Weights
) -> EnergyScores:
    keeps_cards = weights.cpu_pods_on_gpu_nodes == "avoid" and asks_no_card(pod)
    nodes = _nodes(pod, twin_columns, rows, weights)
    cards, formula = pod.gpu_milli / 1000, weights.energy_formula
    return energy_scores(nodes, cores_of(pod), cards, keeps_cards, known, formula)


def cards_kept(
    pod: PodAsk,
    scores: Floats,
    twin_columns: TwinColumns,
    rows: Ints,
    known: Bools,
    weights: Weights,
) -> Floats | None:
    """The points that keep a pod without cards off nodes with free cards.

    They leave such a node at least `LEAD` points below the best of the other nodes, or at 0. None
    if the rule changes no score.
    """
    if weights.cpu_pods_on_gpu_nodes != "avoid" or not asks_no_card(pod):
        return None
    with_cards = free_cards(twin_columns, rows) > CLOSE
    kept, others = with_cards & known, known & ~with_cards
    if not kept.any() or not others.any():
        return None
    most = max(0.0, float(scores[others].max()) - LEAD)
    points: Floats = np.where(kept, scores * (1 - most / 100), 0.0)
    return points


def _nodes(pod: PodAsk, twin_columns: TwinColumns, rows: Ints, weights: Weights) -> EnergyNodes:
    """Only for the candidates: most snapshots answer few requests."""
    names = ("cores", "gpus", "cpu_max_w", "gpu_max_w", "pods_cpu_w", "pue")
    columns = (twin_columns.floats(name).take(rows) for name in names)
    cores, cards, cpu_w, card_w, pods_w, pue = columns
    rates = weights.coefficients
    is_performance = pod.workload == "performance"
    card_rate = rates.gpu_performance if is_performance else rates.gpu_standard
    is_polled = twin_columns.columns["is_polled"].take(rows)
    return EnergyNodes(
        free_cores=free_cores_of(cores, cpu_w, pods_w),
        free_cards=free_cards(twin_columns, rows),
        cores=cores,
        cards=cards,
        idle_w=IDLE_CPU_SHARE * cpu_w + IDLE_CARD_SHARE * (cards * card_w),
        w_per_core=(rates.cpu * memory_factor(pod, rates)) * (cpu_w / np.maximum(cores, 1.0)),
        w_per_card=np.where(cards > 0, card_w, 0.0) * card_rate,
        is_empty=(pods_w == 0) & (used_cards_w(twin_columns, rows) == 0),
        pue=np.where(is_polled, np.maximum(1.0, pue), 1.0),
    )
