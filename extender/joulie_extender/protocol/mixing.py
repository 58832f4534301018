"""Several words of 64 bits in one, of which each bit of each has a say. Pure."""

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
ODD = 0x9E3779B97F4A7C15  # without a pattern, as its powers are


def mixers(count: int) -> Words:
    """To be multiplied with: no word can change without changing the sum, and its upper bits are
    well mixed."""
    return np.array([pow(ODD, power, 2**64) for power in range(1, count + 1)], np.uint64)
