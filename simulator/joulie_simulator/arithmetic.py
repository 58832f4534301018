"""kube-scheduler's own arithmetic, in its integers: what its plugins give, how it adds up. Pure.

Only what differs between nodes: NodeResourcesFit (LeastAllocated) and BalancedAllocation, each of
weight 1, over CPU and memory. Taints, affinity and images give every simulated node the same.
"""

from collections.abc import Mapping, Sequence

from joulie_simulator.cluster import MIB_PER_GIB, SimNode
from joulie_simulator.workload import Job

BEST = 100  # MaxNodeScore
PER_POINT = 10  # MaxNodeScore / MaxExtenderPriority: what one point of an extender is worth


def plugin_score(node: SimNode, job: Job) -> int:
    used = _used(node, job)
    return least_allocated(used) + balanced(used)


def least_allocated(used: Sequence[tuple[int, int]]) -> int:
    """More for what stays free once the pod is there; every division drops its rest."""
    return sum((total - taken) * BEST // total for taken, total in used) // len(used)


def balanced(used: Sequence[tuple[int, int]]) -> int:
    """More the nearer the shares of CPU and memory are to each other."""
    (cpu, cpus), (memory, memories) = used
    return int((1 - abs(cpu / cpus - memory / memories) / 2) * BEST)


def totals(plugins: Mapping[str, int], extender: Mapping[str, int], weight: int) -> dict[str, int]:
    """A candidate that the extender does not name gets nothing from it; strangers are ignored."""
    return {
        name: score + PER_POINT * weight * extender.get(name, 0) for name, score in plugins.items()
    }


def _used(node: SimNode, job: Job) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of CPU and memory: what would be taken, of how much."""
    milli, mib = node.shape.cores * 1000, node.shape.memory_gib * MIB_PER_GIB
    cpu = milli - round(node.free_cores * 1000) + round(job.cores * 1000)
    return (cpu, milli), (mib - node.free_mib + job.memory_mib, mib)
