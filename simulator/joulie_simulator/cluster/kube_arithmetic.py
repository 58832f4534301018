"""kube-scheduler's integer arithmetic: the scores of its plugins and their sum.

Only plugins whose scores differ between nodes: NodeResourcesFit (LeastAllocated) and
BalancedAllocation, each with weight 1, over CPU and memory. Taints, affinity and images give every
simulated node the same score.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from joulie_projections.twin.arrays import Ints

BEST = 100  # MaxNodeScore
PER_POINT = 10  # MaxNodeScore / MaxExtenderPriority: the weight of one point of an extender


class Use(NamedTuple):
    """Requested and allocatable amounts of one resource, one row per node."""

    taken: Ints
    total: Ints


def plugin_scores(cpu: Use, memory: Use) -> Ints:
    return least_allocated(cpu, memory) + balanced(cpu, memory)


def least_allocated(*uses: Use) -> Ints:
    """Higher the more stays free after the placement; with integer division."""
    free = [(total - taken) * BEST // total for taken, total in uses]
    return np.asarray(sum(free) // len(free), np.int64)


def balanced(cpu: Use, memory: Use) -> Ints:
    """Higher the closer the used shares of CPU and memory are."""
    apart = np.abs(cpu.taken / cpu.total - memory.taken / memory.total)
    return ((1 - apart / 2) * BEST).astype(np.int64)


def totals(plugins: Mapping[str, int], extender: Mapping[str, int], weight: int) -> dict[str, int]:
    """Add the extender's scores: 0 for candidates it omits; other nodes are ignored."""
    return {
        name: score + PER_POINT * weight * extender.get(name, 0) for name, score in plugins.items()
    }
