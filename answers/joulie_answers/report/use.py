"""The use of what pods request, by the measured energy of all pods together."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from joulie_audit.ledger.pods_in_log import PodLife
from joulie_projections.energy.pods import (
    GPU_PERMILLE,
    Capacity,
    NodeEntry,
    PodEntry,
    asked_power,
    weight_of,
)
from joulie_projections.hardware.card_power import CardPower
from joulie_simulator.energy.closed_loop import whole_cards

LEAST_USE = 0.02
HALVINGS = 40  # of the range in which the use is searched: more than its digits


class _Curved(NamedTuple):
    curve: CardPower
    rate: float  # share of the time that the card works at full use


class Requested(NamedTuple):
    """The energy of requests at full use by a line, and the times of measured cards."""

    linear_uj: int
    cards_ms: Mapping[_Curved, int]

    @classmethod
    def of(
        cls, lives: Iterable[PodLife], span: tuple[int, int], nodes: Mapping[str, NodeEntry]
    ) -> "Requested":
        linear_uj, cards_ms = 0, Counter[_Curved]()
        for life in lives:
            ms = max(0, min(life.end_ms or span[1], span[1]) - max(life.start_ms, span[0]))
            node = nodes[life.node].capacity if life.node in nodes else Capacity()
            pod = PodEntry.of(life.pod, life.node, life.start_ms)
            if node.curve is None or not pod.gpu_milli:
                linear_uj += weight_of(pod, node) * ms
            else:
                linear_uj += asked_power(pod, node).cpu * ms
                curved = _Curved(node.curve, GPU_PERMILLE[pod.workload] / 1000)
                cards_ms[curved] += whole_cards(pod.gpu_milli) * ms
        return cls(linear_uj, cards_ms)

    def used_uj(self, use: float) -> float:
        """A card that is held and does nothing has energy too."""
        cards = self.cards_ms.items()
        curved = sum(each.curve.added_w(each.rate * use) * 1000 * ms for each, ms in cards)
        return self.linear_uj * use + curved


def use_of(requested: Requested, measured_uj: float) -> float:
    """The factor for all requests by which the model gives the measured energy."""
    if not requested.cards_ms:
        whole_uj = requested.linear_uj
        return min(1.0, max(LEAST_USE, measured_uj / whole_uj)) if whole_uj else LEAST_USE
    low, high = LEAST_USE, 1.0
    if requested.used_uj(high) <= measured_uj:
        return high
    for _ in range(HALVINGS):
        use = (low + high) / 2
        low, high = (use, high) if requested.used_uj(use) < measured_uj else (low, use)
    return low
