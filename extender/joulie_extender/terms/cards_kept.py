"""Keeps pods without cards off nodes with free cards while other nodes have room."""

from dataclasses import dataclass

import numpy as np

from joulie_bus.core.setting_fields import choice, setting
from joulie_extender.gpu.free import asks_no_card, free_cards
from joulie_extender.terms.freshness import NEUTRAL
from joulie_extender.terms.term import Amount, Term, TermInput
from joulie_projections.twin.arrays import Floats
from joulie_projections.twin.energy_score import CLOSE

LEAD = 20.0  # points: kube-scheduler's own scores can outweigh a smaller lead


@dataclass(frozen=True, kw_only=True)
class CardsKeptSettings:
    cpu_pods_on_gpu_nodes: str = setting(
        choice("avoid", "allow"),
        "CPU_PODS_ON_GPU_NODES",
        "avoid",
        "avoid: a pod without a GPU request scores low on nodes with free cards while other "
        "nodes have room",
    )


class CardsKept(Term[CardsKeptSettings]):
    """Leaves a node with free cards at least `LEAD` points below the best other node, or at 0."""

    name = "cards_kept"
    head = "cards kept"
    meaning = "Points against a pod without cards on a node with free cards"
    settings = CardsKeptSettings
    before = (("cpu_pods_on_gpu_nodes", "allow"),)
    is_after_clamp = True

    def value(self, asked: TermInput, settings: CardsKeptSettings) -> Floats | None:
        if settings.cpu_pods_on_gpu_nodes != "avoid" or not asks_no_card(asked.pod):
            return None
        known = asked.basis > NEUTRAL
        with_cards = free_cards(asked.twin_columns, asked.rows) > CLOSE
        kept, others = with_cards & known, known & ~with_cards
        if not kept.any() or not others.any():
            return None
        most = max(0.0, float(asked.total[others].max()) - LEAD)
        points: Floats = np.where(kept, asked.total * (1 - most / 100), 0.0)
        return points

    def points(self, value: Amount, _: CardsKeptSettings) -> Amount:
        return -value
