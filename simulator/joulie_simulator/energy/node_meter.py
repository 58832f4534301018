"""The power of simulated nodes by minute, where the log has readings of them, and hours awake."""

import numpy as np

from joulie_simulator.energy.fleet import Fleet
from joulie_simulator.energy.jobs import Bools, Floats

S_PER_HOUR = 3600.0
WS_PER_KWH = 3_600_000.0


class NodeMeter:
    """Read once in each minute, which may stand for a shorter time."""

    def __init__(self, metered: Bools, minutes: int, step_s: float) -> None:
        self._metered, self._step_s = metered, step_s
        self._watts = np.zeros((2, minutes))  # of metered nodes: those awake, those asleep
        self._minutes = self._awake = 0

    def read(self, fleet: Fleet) -> None:
        """A node that boots is awake."""
        asleep = fleet.asleep
        self._awake += len(asleep) - int(asleep.sum())
        metered_w = np.where(self._metered, fleet.power_w, 0.0)
        asleep_w = float(metered_w[asleep].sum())
        self._watts[:, self._minutes] = float(metered_w.sum()) - asleep_w, asleep_w
        self._minutes += 1

    @property
    def awake_node_hours(self) -> float:
        return self._awake * self._step_s / S_PER_HOUR

    def kwh(self, start_s: float, end_s: float) -> tuple[float, float]:
        """Of the metered nodes in this part of the period: awake, and asleep."""
        edges = np.arange(self._minutes + 1, dtype=np.float64) * self._step_s
        awake, asleep = (_between(edges, watts, start_s, end_s) for watts in self._watts)
        return awake * self._step_s / WS_PER_KWH, asleep * self._step_s / WS_PER_KWH


def _between(edges: Floats, watts: Floats, start_s: float, end_s: float) -> float:
    """The sum of the minutes; of one that is cut, the part."""
    sums = np.concatenate((np.zeros(1), np.cumsum(watts[: len(edges) - 1])))
    first, last = np.interp((start_s, end_s), edges, sums).tolist()
    return float(last - first)
