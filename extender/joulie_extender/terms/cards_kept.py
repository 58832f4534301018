"""Keeps pods without cards off nodes with free cards while other nodes have room."""

from dataclasses import dataclass

from joulie_bus.core.setting_fields import choice, preset_number
from joulie_extender.gpu.free import asks_no_card, free_cards
from joulie_extender.terms.lead import points_behind
from joulie_extender.terms.term import Amount, Term, TermInput
from joulie_projections.twin.arrays import Floats
from joulie_projections.twin.energy_score import ROUNDING


@dataclass(frozen=True, kw_only=True)
class CardsKeptSettings:
    cpu_pods_on_gpu_nodes: str = preset_number(
        choice("avoid", "allow"),
        "cpu_pods_on_gpu_nodes",
        "avoid",
        "avoid: a pod without a GPU request scores low on nodes with free cards while other "
        "nodes have room",
        "scores",
    )


class CardsKept(Term[CardsKeptSettings]):
    name = "cards_kept"
    head = "cards kept"
    meaning = "Points against a pod without cards on a node with free cards"
    settings = CardsKeptSettings
    is_after_clamp = True

    def value(self, asked: TermInput, settings: CardsKeptSettings) -> Floats | None:
        if settings.cpu_pods_on_gpu_nodes != "avoid" or not asks_no_card(asked.pod):
            return None
        return points_behind(asked, free_cards(asked.twin_columns, asked.rows) > ROUNDING)

    def points(self, value: Amount, _: CardsKeptSettings) -> Amount:
        return -value
