"""How scores of a plugin become numbers from 0 to 100."""

import numpy as np

from joulie_projections.twin.arrays import Ints

BEST = 100  # MaxNodeScore


def by_highest(scores: Ints, *, fewer_is_better: bool = False) -> Ints:
    """In proportion to the highest score, with integer division."""
    highest = int(scores.max(initial=0))
    if not highest:
        return np.full(len(scores), BEST if fewer_is_better else 0, np.int64)
    found = BEST * scores // highest
    return BEST - found if fewer_is_better else found
