"""The power of a card by the share of the time that it works, as measured on a card of its model.

The curve is concave: the first process raises the clocks, and the last quarter of the work costs
least. A model without measurements has no curve; its power is linear.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_projections.hardware.catalog import BUSY, FIGURES

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class CardPower(NamedTuple):
    """Watts of one card."""

    idle_w: float  # without a process
    busy_w: tuple[float, ...]  # with a process that works for the shares `BUSY` of the time

    @classmethod
    def of(cls, watts: Sequence[float]) -> "CardPower":
        idle_w, *busy_w = watts
        return cls(idle_w, tuple(busy_w))

    @classmethod
    def measured(cls, milliwatts: Sequence[int]) -> "CardPower | None":
        """None without figures, and for those of a newer program, which measures otherwise."""
        if len(milliwatts) != FIGURES:
            return None
        return cls.of([each / 1000 for each in milliwatts])

    @property
    def milliwatts(self) -> tuple[int, ...]:
        """As in `ModelFigures`."""
        return tuple(round(watts * 1000) for watts in (self.idle_w, *self.busy_w))

    @property
    def process_w(self) -> float:
        """Added by the first process on an idle card, even if it does nothing."""
        return self.busy_w[0] - self.idle_w

    def added_w(self, busy: float) -> float:
        """Above the power of an idle card, by a process that works for this share of the time."""
        return float(np.interp(busy, BUSY, self.busy_w)) - self.idle_w


class CurveNumbers:
    """Numbers curves, so that a column can name them. Numbers are only added, and they carry no
    meaning: results depend on the curves alone."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {(): 0}
        self._curves: list[CardPower] = [CardPower(0.0, (0.0,) * len(BUSY))]

    def number(self, milliwatts: tuple[int, ...]) -> int:
        """0 for a card without a curve."""
        known = self._numbers.get(milliwatts)
        if known is None:
            curve = CardPower.measured(milliwatts)
            if curve is None:
                return 0
            known = self._numbers[milliwatts] = len(self._curves)
            self._curves.append(curve)
        return known

    def curve(self, number: int) -> CardPower:
        return self._curves[number]

    def watts(self, numbers: Ints, busy: float) -> "CurveWatts":
        idle = np.array([curve.idle_w for curve in self._curves])
        process = np.array([curve.process_w for curve in self._curves])
        work = np.array([curve.added_w(busy) - curve.process_w for curve in self._curves])
        return CurveWatts(numbers > 0, idle[numbers], process[numbers], work[numbers])


class CurveWatts(NamedTuple):
    """One value per node: of one of its cards."""

    is_measured: npt.NDArray[np.bool_]
    idle_w: Floats
    process_w: Floats  # added by the first process on an idle card
    work_w: Floats  # added by what a process does


CURVES = CurveNumbers()
