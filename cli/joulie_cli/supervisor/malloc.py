"""Keeps the memory that a process gives back and takes again hundreds of times a second.

A board of 5,000 nodes is a megabyte of columns, made anew whenever the view moves. glibc hands
arrays of this size back to the kernel and asks for them again, page by page, each page a fault: as
much work as the arithmetic itself. Elsewhere nothing is done, and nothing breaks.
"""

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # of glibc's mallopt
KEPT_BYTES = 32 * 2**20  # at the end of the heap, for what comes next
AHEAD_BYTES = 4 * 2**20  # taken more than was asked for
LARGE_BYTES = 4 * 2**20  # a body of whole nodes goes back to the kernel


def keep_memory() -> None:
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_TOP_PAD, AHEAD_BYTES)
