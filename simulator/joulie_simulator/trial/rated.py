"""What an empty node draws and what is saved while it sleeps: bounds from the rated power.

Nothing is measured here. Each figure is a low and a high one, and a node of which nothing is rated
has none.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from joulie_projections.hardware.catalog import Catalog
from joulie_simulator.trial.moment import MomentNode

# Shares of the rated power of processors that servers draw without work: measured ones draw 45 to
# 50 %, newer ones less.
IDLE_CPU = (0.25, 0.5)
IDLE_CARD_W = (16.0, 70.0)  # data-centre cards without a process
ASLEEP_W = (15.0, 80.0)  # of a sleeping node without and with cards: assumed
PERCENTILES = (10, 90)  # of the processors of the catalog, where a node's is not known


class Watts(NamedTuple):
    low: float
    high: float


class Rating(NamedTuple):
    """The processors of the catalog, by watts of a thread: what stands for an unknown one."""

    per_thread: Watts

    @classmethod
    def of(cls, catalog: Catalog) -> "Rating":
        models = {id(model): model for model in catalog.cpus.values()}.values()
        rated = [model.tdp_w / (model.cores * model.threads) for model in models]
        low, high = np.percentile(rated, PERCENTILES).tolist() if rated else (0.0, 0.0)
        return cls(Watts(low, high))

    def saved(self, node: MomentNode) -> Watts | None:
        """By a node that sleeps instead of being idle; None if nothing is known of it."""
        processors = self._processors(node)
        if processors is None:
            return None
        cards = _cards(node)
        asleep = ASLEEP_W[cards.high > 0]
        low = IDLE_CPU[0] * processors.low + cards.low - asleep
        return Watts(max(0.0, low), IDLE_CPU[1] * processors.high + cards.high)

    def _processors(self, node: MomentNode) -> Watts | None:
        """The rated power."""
        if is_rated(node):
            assert node.hardware is not None
            watts = node.hardware.cpu_max_mw_per_socket * node.hardware.cpu_sockets / 1000
            return Watts(watts, watts)
        threads = node.seen.cpu_milli / 1000
        if not threads or not self.per_thread.high:
            return None
        return Watts(threads * self.per_thread.low, threads * self.per_thread.high)


def is_rated(node: MomentNode) -> bool:
    """Whether the model of its processors is known, and with it their rated power."""
    return node.hardware is not None and node.hardware.cpu_max_mw_per_socket > 0


def _cards(node: MomentNode) -> Watts:
    """Of a model that was measured, its figure."""
    cards = max(node.seen.gpus, node.hardware.gpu_count if node.hardware else 0)
    curve = node.hardware.figures.gpu_curve_mw if node.hardware else ()
    if curve:
        return Watts(cards * curve[0] / 1000, cards * curve[0] / 1000)
    return Watts(cards * IDLE_CARD_W[0], cards * IDLE_CARD_W[1])


def total(parts: Iterable[Watts]) -> Watts:
    found = list(parts)
    return Watts(sum(each.low for each in found), sum(each.high for each in found))
