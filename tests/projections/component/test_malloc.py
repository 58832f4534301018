"""What a snapshot takes, it takes from the kernel once."""

import platform
import subprocess
import sys

import pytest

SNAPSHOTS = """
import resource
import numpy as np
from joulie_projections.component.malloc import keep_memory

def snapshot(held):
    # Its columns stay until the next one is there, the tables do not.
    columns = [np.ones(5000) for _ in range(60)]
    table = np.ones((5000, 16))
    doubled = table * 2
    more = doubled + 1
    held[:] = columns

def faults(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = []
    for _ in range(count):
        snapshot(held)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_memory()
faults(20)
print(faults(200))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="wants glibc's allocator")
def test_freed_memory_is_reused_without_page_faults() -> None:
    """Two hundred snapshots; given back each time they are some 130,000 pages."""
    done = subprocess.run([sys.executable, "-c", SNAPSHOTS], check=True, capture_output=True)

    assert int(done.stdout) < 200
