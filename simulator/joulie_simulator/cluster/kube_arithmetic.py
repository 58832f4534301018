"""kube-scheduler's own arithmetic, in its integers: what its plugins give, how it adds up. Pure.

Only what differs between nodes: NodeResourcesFit (LeastAllocated) and BalancedAllocation, each of
weight 1, over CPU and memory. Taints, affinity and images give every simulated node the same.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from joulie_projections.twin.arrays import Ints

BEST = 100  # MaxNodeScore
PER_POINT = 10  # MaxNodeScore / MaxExtenderPriority: what one point of an extender is worth


class Use(NamedTuple):
    """Of one resource, a row per node: what would be taken, of how much."""

    taken: Ints
    total: Ints


def plugin_scores(cpu: Use, memory: Use) -> Ints:
    return least_allocated(cpu, memory) + balanced(cpu, memory)


def least_allocated(*uses: Use) -> Ints:
    """More for what stays free once the pod is there; every division drops its rest."""
    free = [(total - taken) * BEST // total for taken, total in uses]
    return np.asarray(sum(free) // len(free), np.int64)


def balanced(cpu: Use, memory: Use) -> Ints:
    """More the nearer the shares of CPU and memory are to each other."""
    apart = np.abs(cpu.taken / cpu.total - memory.taken / memory.total)
    return ((1 - apart / 2) * BEST).astype(np.int64)


def totals(plugins: Mapping[str, int], extender: Mapping[str, int], weight: int) -> dict[str, int]:
    """A candidate that the extender does not name gets nothing from it; strangers are ignored."""
    return {
        name: score + PER_POINT * weight * extender.get(name, 0) for name, score in plugins.items()
    }
