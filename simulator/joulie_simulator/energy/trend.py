"""Power trends: the least-squares slope of the newest samples of each node."""

import numpy as np

from joulie_simulator.energy.jobs import Floats

SAMPLES = 10


class Trends:
    """One sample per minute and node; every placement updates the newest sample."""

    def __init__(self, nodes: int) -> None:
        self._ring = np.zeros((SAMPLES, nodes))
        self._totals = np.zeros(
            SAMPLES
        )  # at the start of each minute; placements do not change them
        self._count = 0
        self.node_w_per_min: Floats = np.zeros(nodes)
        self.cluster_w_per_min = 0.0

    def sample(self, power_w: Floats) -> None:
        self._ring[:-1] = self._ring[1:]
        self._ring[-1] = power_w
        self._totals[:-1] = self._totals[1:]
        self._totals[-1] = power_w.sum()
        self._count = min(SAMPLES, self._count + 1)
        weights = slope_weights(self._count)
        newest = self._ring[SAMPLES - self._count :]
        totals = self._totals[SAMPLES - self._count :]
        # Relative to the mean, so that rounding does not grow with the size of the values.
        self.node_w_per_min = weights @ (newest - newest.mean(axis=0))
        self.cluster_w_per_min = float(weights @ (totals - totals.mean()))

    def placed(self, node: int, power_w: float) -> None:
        self._ring[-1, node] = power_w


def slope_weights(count: int) -> Floats:
    if count < 2:
        return np.zeros(count)
    minutes = np.arange(count) - (count - 1) / 2
    weights: Floats = minutes / (minutes * minutes).sum()
    return weights
