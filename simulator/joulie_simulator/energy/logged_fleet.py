"""The nodes of a log as a fleet, with the idle power that their meters showed."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from joulie_projections.energy.pods import CPU_PERMILLE
from joulie_projections.hardware.card_power import CURVES, CardPower
from joulie_simulator.energy.fleet import CARD_COEFFICIENT, MEASURED, Fleet
from joulie_simulator.energy.jobs import Bools, Floats, Job

ASLEEP = 0.1  # of the idle power: assumed


class LoggedNode(NamedTuple):
    name: str
    cores: float
    cards: int  # that pods can request, or units of them
    idle_w: float  # without pods
    w_per_core: float  # at full use
    w_per_card: float  # or of one unit
    curve: CardPower | None = None  # of a card that was measured; the others draw by a line
    physical_cards: int = 0  # if pods request units of them
    metered: bool = True  # whether the log has readings of it
    labels: Mapping[str, str] | None = None  # that plans read; None: plans cover it
    memory: float = inf  # bytes; infinite where it is not known

    @property
    def most_cards(self) -> int:
        """That a pod can have: two units of one card are no more than one."""
        return self.physical_cards or self.cards


class LoggedFleet(Fleet):
    """Nodes as the log knows them. Idle power is that of the node; pods add what they use."""

    def __init__(self, nodes: Sequence[LoggedNode]) -> None:
        super().__init__(len(nodes), 0, MEASURED)
        self.cores = np.array([node.cores for node in nodes])
        self.cards = np.array([node.cards for node in nodes], np.int64)
        self.physical_cards = np.array([node.most_cards for node in nodes], np.int64)
        self.free_cores = self.cores.copy()
        self.free_cards = self.cards.copy()
        self.free_memory = np.array([node.memory for node in nodes])
        self.core_w = np.array([node.w_per_core for node in nodes])
        self.card_w: Floats = np.array([node.w_per_card for node in nodes])
        self.idle_w = np.array([node.idle_w for node in nodes])
        self.cpu_peak_w = self.core_w * self.cores
        self.peak_w = np.maximum(1.0, self.idle_w + self.cpu_peak_w + self.card_w * self.cards)
        numbers = [CURVES.number(node.curve.milliwatts) if node.curve else 0 for node in nodes]
        self.curves = np.array(numbers, np.int64)  # of the cards, by their numbers in `CURVES`
        self.metered: Bools = np.array([node.metered for node in nodes], np.bool_)
        self._nodes = nodes
        self._asleep_w = self.idle_w * ASLEEP
        self.power_w = self.idle_w.copy()

    def dynamic_of(self, node: int, job: Job) -> float:
        cores, curve = self.core_w[node] * job.cores * job.cpu_use, self.curves[node]
        rate = CARD_COEFFICIENT[job.performance]
        if curve and job.gpus:
            added_w = CURVES.curve(int(curve)).added_w(rate * job.gpu_use)
            return float(cores + job.gpus * added_w)
        cards = self.card_w[node] * rate * job.gpus
        return float(cores + cards * job.gpu_use)

    def update_power(self, node: int) -> None:
        self.power_w[node] = self.idle_w[node] + self.dynamic_w[node]

    def idle_cards_w(self) -> float:
        return 0.0  # part of the idle power of the nodes

    def marginal_w(self, job: Job) -> Floats:
        cards: Floats = self.card_w * CARD_COEFFICIENT[job.performance] * job.gpus
        return self.core_w * job.cores + cards

    def rated_cpu_w(self, node: int) -> float:
        """Pods draw a part of it, as in the ledger."""
        return float(self.cpu_peak_w[node]) * 1000 / CPU_PERMILLE

    def rated_card_w(self, node: int) -> float:
        units = self.cards[node] / max(1, self.physical_cards[node])
        return float(self.card_w[node] * units)

    def card_curve(self, node: int) -> CardPower | None:
        return self._nodes[node].curve

    def labels(self, node: int) -> Mapping[str, str] | None:
        return self._nodes[node].labels
