"""Multipliers that hash several 64-bit words into one."""

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
ODD = 0x9E3779B97F4A7C15  # without a pattern, as its powers are


def mixers(count: int) -> Words:
    """Odd factors: changing any word changes the sum of the products, and its upper bits are well
    mixed.
    """
    return np.array([pow(ODD, power, 2**64) for power in range(1, count + 1)], np.uint64)
