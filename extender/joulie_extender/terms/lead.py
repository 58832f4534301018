"""A lead for some candidates: how far the others are left behind."""

import numpy as np

from joulie_extender.terms.freshness import NEUTRAL
from joulie_extender.terms.term import TermInput
from joulie_projections.twin.arrays import Bools, Floats

LEAD = 20.0  # points: kube-scheduler's own scores can outweigh a smaller lead


def points_behind(asked: TermInput, worse: Bools) -> Floats | None:
    """The points that leave each worse candidate at least `LEAD` below the best other one, or at 0.

    None if there are not both: then no order between them is asked for.
    """
    known = asked.basis > NEUTRAL
    behind, others = known & worse, known & ~worse
    if not behind.any() or not others.any():
        return None
    most = max(0.0, float(asked.total[others].max()) - LEAD)
    points: Floats = np.where(behind, asked.total * (1 - most / 100), 0.0)
    return points
