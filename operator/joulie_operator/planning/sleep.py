"""Which nodes sleep and which wake up: the policy `consolidate_and_sleep`. Pure.

Empty nodes beyond a reserve sleep; pods that fit on no node wake nodes. The nodes with cards and
those without are two pools with a reserve each. Nodes empty by placement: no pod is evicted.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from joulie_bus.events import PodAsk
from joulie_operator.planning.eligible import is_covered, selector
from joulie_operator.planning.policies import Candidate
from joulie_operator.planning.resting import FreeNodes
from joulie_operator.planning.rules import Rules, numbers
from joulie_projections.pods.load import load_of
from joulie_projections.state.state import ClusterState, NodeState, PodState

SLEEPING_POLICY = "consolidate_and_sleep"
MOST_WAITING = 2000  # pods that one plan looks for a place for
_SECOND = 1_000_000_000

IDLE = "it is empty and beyond the reserve"
IN_USE = "pods run here"
DEMAND = "pods wait for it"
RESERVE = "it belongs to the reserve"
LOST = "it has not woken up in time"


class SleepNumbers(NamedTuple):
    """The numbers of the policy, from POLICY_NUMBERS."""

    sleep_after_s: float = 600.0  # without pods, before a node may sleep
    reserve: float = 0.03  # share of a pool that stays empty and awake
    max_share: float = 0.8  # share of a pool that may sleep
    wake_timeout_s: float = 900.0  # after which another node is woken instead


def sleep_numbers(rules: Rules) -> SleepNumbers:
    given = numbers(rules.policy_numbers)
    return SleepNumbers(**{name: given[name] for name in SleepNumbers._fields if name in given})


def wrong_numbers(given: Mapping[str, float]) -> list[str]:
    """What is wrong with these numbers, for the error at the start."""
    known = ", ".join(SleepNumbers._fields)
    unknown = [name for name in given if name not in SleepNumbers._fields]
    shares = [name for name in ("reserve", "max_share") if not 0 <= given.get(name, 0) <= 1]
    times = [name for name in ("sleep_after_s", "wake_timeout_s") if given.get(name, 0) < 0]
    return [
        *(f"{SLEEPING_POLICY} has no {name}; it has {known}" for name in unknown),
        *(f"{name}={given[name]:g} is not a share from 0 to 1" for name in shares),
        *(f"{name}={given[name]:g} is not a time" for name in times),
    ]


class PowerChanges(NamedTuple):
    """Nodes to put to sleep and to wake, and nodes that are held; each with the reason."""

    sleep: dict[str, str]
    wake: dict[str, str]
    held: dict[str, str]


class Need(NamedTuple):
    """The number of nodes that waiting pods would fill, by pool."""

    without_cards: int = 0
    with_cards: int = 0


class Pool(NamedTuple):
    """The nodes of a pool, by what they do now."""

    size: int
    in_use: Sequence[str]
    empty: Sequence[str]  # the longest empty first
    waking: Sequence[str]
    asleep: Sequence[str]


def power_changes(
    cluster_state: ClusterState, candidates: Sequence[Candidate], rules: Rules, now: int
) -> PowerChanges:
    """`candidates` are the nodes that are awake and that plans cover."""
    changes, limits = PowerChanges({}, {}, {}), sleep_numbers(rules)
    nodes = {
        name: node
        for name, node in cluster_state.nodes.items()
        if is_covered(node, selector(rules.selector))
    }
    lost_before = now - int(limits.wake_timeout_s * _SECOND)
    families = {candidate.name: candidate.family for candidate in candidates}
    need, missing = needed_nodes(cluster_state.nodes, cluster_state.pods), 0
    for has_cards, needed in ((False, need.without_cards), (True, need.with_cards)):
        pool = _pool(nodes, has_cards, lost_before, changes)
        missing = _balance(pool, needed + missing, families, limits, changes)
    _keep_unsettled(nodes, now - int(limits.sleep_after_s * _SECOND), changes)
    return changes


def surplus_of(empty: int, waking: int, needed: int, reserve: int) -> int:
    """Empty nodes that may sleep; if negative, the number of nodes to wake."""
    return empty + waking - needed - reserve


def is_empty(node: NodeState) -> bool:
    """Whether no pod would have to move if the node slept."""
    return node.pods == node.daemon_pods and not node.draining


def idle_since(node: NodeState) -> int:
    """A node that has never had pods is idle since its first plan."""
    return max(node.emptied_at, node.power_at) or node.class_at


# --- pods that wait ---------------------------------------------------------------------------


def needed_nodes(nodes: Mapping[str, NodeState], pods: Mapping[str, PodState]) -> Need:
    """Whole nodes for the pods that fit on no node, the largest node of each pool as the measure.

    The largest pods come first, so that small ones do not take the only nodes that fit them.
    """
    free = FreeNodes(nodes)
    waiting = (each.pod for each in pods.values() if not each.node and not each.finished)
    ordered = sorted(waiting, key=lambda pod: (-pod.gpu_milli, -load_of(pod).cpu_milli, pod.uid))
    left = [pod for pod in ordered[:MOST_WAITING] if free.take(pod) is None]
    return Need(
        _filled((pod for pod in left if not pod.gpu_milli), _largest(nodes, has_cards=False)),
        _filled((pod for pod in left if pod.gpu_milli), _largest(nodes, has_cards=True)),
    )


class Capacity(NamedTuple):
    cpu_milli: int
    gpu_milli: int


def _largest(nodes: Mapping[str, NodeState], *, has_cards: bool) -> Capacity:
    of_pool = [node for node in nodes.values() if (node.gpus > 0) == has_cards]
    return Capacity(
        max((node.cpu_milli for node in of_pool), default=0),
        max((node.gpus * 1000 for node in of_pool), default=0),
    )


def _filled(pods: Iterable[PodAsk], node: Capacity) -> int:
    """A pod that asks for more than the largest node wakes none: no node can run it."""
    share = 0.0
    for pod in pods:
        cpu = load_of(pod).cpu_milli / node.cpu_milli if node.cpu_milli else math.inf
        gpu = pod.gpu_milli / node.gpu_milli if node.gpu_milli else math.inf * bool(pod.gpu_milli)
        part = max(cpu, gpu) if pod.gpu_milli else cpu
        share += part if part <= 1 else 0.0
    return math.ceil(share)


# --- pools ------------------------------------------------------------------------------------


def _pool(
    nodes: Mapping[str, NodeState], has_cards: bool, lost_before: int, changes: PowerChanges
) -> Pool:
    """Also records the nodes that do not wake up: they are left alone, and count for nothing."""
    in_use, empty, waking, asleep = list[str](), list[str](), list[str](), list[str]()
    for name, node in nodes.items():
        if (node.gpus > 0) != has_cards:
            continue
        if node.power_state == "asleep":
            asleep.append(name)
        elif node.power_state == "waking":
            if node.power_at < lost_before:
                changes.held[name] = LOST
            else:
                waking.append(name)
        elif node.ready and node.schedulable:
            (empty if is_empty(node) and node.profile else in_use).append(name)
    empty.sort(key=lambda name: (idle_since(nodes[name]), name))
    asleep.sort(key=lambda name: (-nodes[name].power_at, name))
    size = len(in_use) + len(empty) + len(waking) + len(asleep)
    return Pool(size, in_use, empty, waking, asleep)


def _balance(
    pool: Pool,
    needed: int,
    families: Mapping[str, str],
    limits: SleepNumbers,
    changes: PowerChanges,
) -> int:
    """Returns how many nodes are missing because none of the pool is asleep."""
    reserve = math.ceil(limits.reserve * pool.size)
    surplus = surplus_of(len(pool.empty), len(pool.waking), needed, reserve)
    if surplus >= 0:
        most = math.floor(limits.max_share * pool.size) - len(pool.asleep)
        _put_to_sleep(pool, min(surplus, max(0, most)), families, changes)
        return 0
    chosen = pool.asleep[:-surplus]
    for_pods = needed - len(pool.empty) - len(pool.waking)
    changes.wake.update(
        (name, DEMAND if i < for_pods else RESERVE) for i, name in enumerate(chosen)
    )
    return max(0, for_pods - len(chosen))


def _put_to_sleep(
    pool: Pool, most: int, families: Mapping[str, str], changes: PowerChanges
) -> None:
    """One node of each hardware family stays awake."""
    awake: dict[str, int] = {}
    for name in (*pool.in_use, *pool.empty):
        if name in families:
            awake[families[name]] = awake.get(families[name], 0) + 1
    for name in pool.empty:
        if most > 0 and awake.get(families.get(name, ""), 0) > 1:
            changes.sleep[name] = IDLE
            awake[families[name]] -= 1
            most -= 1


def _keep_unsettled(nodes: Mapping[str, NodeState], latest: int, changes: PowerChanges) -> None:
    """Nodes that became empty a short while ago stay awake; nodes with pods wake up again."""
    for name in [name for name in changes.sleep if idle_since(nodes[name]) > latest]:
        del changes.sleep[name]
    for name, node in nodes.items():
        if node.power_state == "asleep" and node.pods > node.daemon_pods:
            changes.wake[name] = IN_USE
