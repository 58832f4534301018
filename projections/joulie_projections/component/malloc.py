"""Keeps freed memory in the process instead of returning it to the kernel.

The columns of 5,000 twins take a megabyte and are rebuilt whenever the view changes. By default
glibc returns arrays of this size to the kernel and faults them in again page by page, which costs
as much as the arithmetic. On other C libraries nothing is changed.
"""

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # of glibc's mallopt
KEEP_BYTES = 32 * 2**20  # free memory at the end of the heap that is not returned
AHEAD_BYTES = 4 * 2**20  # requested in addition whenever the heap grows
LARGE_BYTES = 4 * 2**20  # larger blocks, such as a body with whole nodes, are returned


def keep_memory() -> None:
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, KEEP_BYTES)
        mallopt(_TOP_PAD, AHEAD_BYTES)
