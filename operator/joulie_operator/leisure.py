"""How long who looks at all nodes rests afterwards, so that looking is not all that is done."""

import time

LEISURE = 49  # pauses are so many times longer than looks: at most 2 % of a core


def rest_s(began: float) -> float:
    """After a look that began at this `time.process_time()`."""
    return (time.process_time() - began) * LEISURE
