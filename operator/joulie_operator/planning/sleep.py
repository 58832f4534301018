"""Which nodes sleep and which wake up: the policy `consolidate_and_sleep`.

Empty nodes beyond a reserve sleep, those with the most idle power first; pods that fit on no node
wake nodes, those with the least idle power first. The nodes with cards and those without are two
pools with a reserve each.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from joulie_operator.planning.density import families
from joulie_operator.planning.eligible import is_covered, selector
from joulie_operator.planning.policy_numbers import PolicyNumbers
from joulie_operator.planning.power.limitable import idle_mw_of
from joulie_operator.planning.power_target import (
    PowerLimits,
    is_fed,
)
from joulie_operator.planning.refused_on_sample import FreeNodes
from joulie_operator.planning.rules import Rules, numbers
from joulie_operator.planning.supply import Need, Needs, freed_by, is_empty
from joulie_projections.state.state import ClusterState, NodeState, PodState

SLEEPING_POLICY = "consolidate_and_sleep"
ZONE_LABEL = "topology.kubernetes.io/zone"
_SECOND = 1_000_000_000
_SIGNIFICANT_BITS = 4
_LONGEST_SLEEP_S = 30 * 86_400.0
_EMPTY_TIMEOUT_S = 3600.0  # after which a node that was to become empty is given back

IDLE = "it is empty and beyond the reserve"
IN_USE = "pods run here"
DEMAND = "pods wait for it"
RESERVE = "it belongs to the reserve"
LAST = "it is the last of its hardware family or zone that is awake"
TARGET = "the power target is not met by caps"
EMPTIES = "it is nearly empty and sleeps once its pods have ended"
OVERDUE = "its pods have not ended in time"
UNENDED = "its pods have not ended by themselves and fit on other nodes"
CHECKED = "it has slept for 30 days, and is checked"
COVERS = "no other node of its hardware family or zone is awake"
LOST = "it has not woken up in time"


def sleep_numbers(rules: Rules) -> PolicyNumbers:
    """The numbers of the policy; those that are not given have their defaults."""
    return msgspec.convert(numbers(rules.policy_numbers), PolicyNumbers, strict=False)


def evictions_allowed(rules: Rules) -> bool:
    return rules.policy == SLEEPING_POLICY and sleep_numbers(rules).evict_per_min > 0


class PowerChanges(NamedTuple):
    """Nodes to put to sleep, to wake and to empty, and nodes that are held; each with the
    reason."""

    sleep: dict[str, str]
    wake: dict[str, str]
    held: dict[str, str]
    inputs: dict[str, float]  # what the changes follow from
    evict: dict[str, str]


class Pool(NamedTuple):
    """The nodes of a pool, by what they do now."""

    size: int
    in_use: Sequence[str]
    empty: Sequence[str]  # those with the most idle power first, then the longest empty
    settled: frozenset[str]  # of those empty: for the shortest time at least
    waking: Sequence[str]
    asleep: Sequence[str]  # those with the least idle power first, then the last to fall asleep
    rested: Sequence[str]  # of those asleep: for the shortest time of sleep at least
    fallen: int  # how many fell asleep within the last interval
    has_cards: bool


class Spare(NamedTuple):
    """Nodes of a pool that the waiting pods do not get."""

    reserve: int  # empty nodes that stay awake
    rivals: int = 0  # waking nodes that pods of the other pool fill before


class Limits(NamedTuple):
    """What holds for all pools of a plan."""

    numbers: PolicyNumbers
    now: int
    interval_s: float
    groups: Mapping[str, Sequence[str]]  # of each node: its hardware family and its zone

    def before(self, seconds: float) -> int:
        return self.now - int(seconds * _SECOND)


def power_changes(
    cluster_state: ClusterState,
    rules: Rules,
    now: int,
    power: PowerLimits,
    needs: Needs,
) -> PowerChanges:
    changes, nodes = PowerChanges({}, {}, {}, {}, {}), _covered(cluster_state, rules)
    limits = _limits(nodes, rules, now)
    given = limits.numbers
    missing, starting = 0, list[str]()
    for has_cards, need in needs.pools.items():
        pool = _pool(nodes, has_cards, limits, changes)
        reserve = _reserve(pool, given)
        wanted = need._replace(standard=need.standard + missing)
        starting += pool.waking
        spare = Spare(reserve, _rivals(nodes, starting, needs) if has_cards else 0)
        missing = _change(nodes, pool, wanted, spare, limits, changes)
        if given.empty_below and not changes.wake:
            _empty_out(nodes, pool, limits, changes)
    _keep_unsettled(nodes, limits, changes)
    _wake_those_in_use(nodes, cluster_state.pods, limits, changes)
    _evict(nodes, cluster_state, limits, changes)
    for feed, headroom_mw in power.headroom_mw.items():
        _meet_target(nodes, feed, headroom_mw, power.drawn_mw, limits, changes)
    return changes


def spared(name: str, cluster_state: ClusterState, rules: Rules, now: int) -> str:
    """Why plans leave a node awake that was empty for long enough; empty if they do not."""
    nodes = _covered(cluster_state, rules)
    limits = _limits(nodes, rules, now)
    pool = _pool(nodes, nodes[name].gpus > 0, limits, PowerChanges({}, {}, {}, {}, {}))
    if not _is_covered_without(name, limits, _awake(pool, limits)):
        return LAST
    reserved = pool.empty[max(0, len(pool.empty) - _reserve(pool, limits.numbers)) :]
    return RESERVE if name in reserved else ""


def _covered(cluster_state: ClusterState, rules: Rules) -> dict[str, NodeState]:
    labels = selector(rules.selector)
    return {name: node for name, node in cluster_state.nodes.items() if is_covered(node, labels)}


def _limits(nodes: Mapping[str, NodeState], rules: Rules, now: int) -> Limits:
    return Limits(sleep_numbers(rules), now, rules.interval_s, _groups(nodes))


def _meet_target(
    nodes: Mapping[str, NodeState],
    feed: str,
    headroom_mw: int,
    drawn_mw: Mapping[str, int],
    limits: Limits,
    changes: PowerChanges,
) -> None:
    """While a power target is in force, the reserve wakes no node, and pods only as many as the
    target allows. If caps do not suffice, empty nodes sleep whatever the reserve is: not in the
    plan that closes them, because a node that changes does not fall asleep."""
    headroom_mw = _wake_within(nodes, feed, headroom_mw, changes)
    awake = [name for name, node in nodes.items() if node.ready and node.schedulable]
    left = Counter(group for name in awake for group in limits.groups.get(name, ()))
    left.subtract(group for name in changes.sleep for group in limits.groups.get(name, ()))
    headroom_mw += sum(drawn_mw[name] for name in changes.sleep if is_fed(nodes[name], feed))
    for name in in_order_of_sleep(nodes, awake):
        node, groups = nodes[name], limits.groups.get(name, ())
        if headroom_mw >= 0:
            return
        if name in changes.sleep or not (is_empty(node) and node.profile and is_fed(node, feed)):
            continue
        if node.power_state or not all(left[group] > 1 for group in groups):
            continue
        changes.sleep[name] = TARGET
        left.subtract(groups)
        headroom_mw += drawn_mw[name]


def _wake_within(
    nodes: Mapping[str, NodeState], feed: str, headroom_mw: int, changes: PowerChanges
) -> int:
    """Takes back the orders to wake that the target does not allow. Returns what is left of it."""
    for name in [name for name in changes.wake if is_fed(nodes[name], feed)]:
        idle_mw = idle_mw_of(nodes[name])
        if changes.wake[name] == IN_USE:
            continue
        if changes.wake[name] != DEMAND or idle_mw > headroom_mw:
            del changes.wake[name]
            continue
        headroom_mw -= idle_mw
    return headroom_mw


def _groups(nodes: Mapping[str, NodeState]) -> dict[str, list[str]]:
    """The groups of which a node stays awake."""
    found = {name: [family] for name, family in families(nodes).items()}
    for name, groups in found.items():
        if zone := nodes[name].labels.get(ZONE_LABEL):
            groups.append(f"zone {zone}")
    return found


def _rivals(nodes: Mapping[str, NodeState], starting: Sequence[str], needs: Needs) -> int:
    """How many of the starting nodes with cards are filled by pods without cards, which take the
    nodes that start first."""
    ordered = sorted(starting, key=lambda name: (nodes[name].power_at, nodes[name].gpus > 0))
    return sum(nodes[name].gpus > 0 for name in ordered[: needs.pools[False].nodes])


def idle_mw_per_unit(node: NodeState) -> int:
    """What the empty node draws for each card, or for each core if it has no cards."""
    units = node.gpus * 1000 or node.cpu_milli
    return idle_mw_of(node) * 1000 // units if units else 0


def rounded_idle_mw(node: NodeState) -> int:
    """The same to four significant bits: equal nodes differ by less, and time orders them."""
    milliwatts = idle_mw_per_unit(node)
    beyond = max(0, milliwatts.bit_length() - _SIGNIFICANT_BITS)
    return milliwatts >> beyond << beyond


def in_order_of_sleep(nodes: Mapping[str, NodeState], names: Iterable[str]) -> list[str]:
    """Those with the most idle power first, then the longest empty."""
    return sorted(
        names, key=lambda name: (-rounded_idle_mw(nodes[name]), nodes[name].empty_since, name)
    )


# --- pools ------------------------------------------------------------------------------------


def _pool(
    nodes: Mapping[str, NodeState], has_cards: bool, limits: Limits, changes: PowerChanges
) -> Pool:
    """Also records the nodes that do not wake up: they are left alone, and count for nothing."""
    in_use, empty, waking, asleep = list[str](), list[str](), list[str](), list[str]()
    lost_before = limits.before(limits.numbers.wake_timeout_s)
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
    empty = in_order_of_sleep(nodes, empty)
    idle = {name: rounded_idle_mw(nodes[name]) for name in asleep}
    asleep.sort(key=lambda name: (idle[name], -nodes[name].power_at, name))
    size = len(in_use) + len(empty) + len(waking) + len(asleep)
    since = limits.before(limits.numbers.sleep_after_s)
    settled = frozenset(name for name in empty if nodes[name].empty_since <= since)
    rested = [name for name in asleep if nodes[name].power_at <= since]
    recent = limits.before(limits.interval_s)
    fallen = sum(nodes[name].power_at > recent for name in asleep)
    return Pool(size, in_use, empty, settled, waking, asleep, rested, fallen, has_cards)


def _change(
    nodes: Mapping[str, NodeState],
    pool: Pool,
    need: Need,
    spare: Spare,
    limits: Limits,
    changes: PowerChanges,
) -> int:
    """The changes of one pool, by the rules of the plan. Returns how many nodes are missing."""
    kind = "with_cards" if pool.has_cards else "without_cards"
    changes.inputs[f"reserve_{kind}"] = spare.reserve
    changes.inputs[f"nodes_for_pods_{kind}"] = need.nodes
    missing = _serve(nodes, pool, need, spare, limits, changes)
    _cover(pool, limits, changes)
    _check(nodes, pool, limits, changes)
    return missing


def _serve(
    nodes: Mapping[str, NodeState],
    pool: Pool,
    need: Need,
    spare: Spare,
    limits: Limits,
    changes: PowerChanges,
) -> int:
    """Wakes nodes for pods that fit on no awake node: an empty node is no supply for them, except
    an eco node that this plan makes a performance node. No node sleeps while such pods wait.
    Returns how many nodes are missing because none of the pool is asleep."""
    changed = len(freed_by(need, nodes, pool.empty, pool.has_cards))
    for_pods = max(0, need.nodes - changed - max(0, len(pool.waking) - spare.rivals))
    surplus = len(pool.empty) - changed - spare.reserve
    if not for_pods and surplus >= 0:
        most = min(surplus, _most_to_sleep(pool, limits.numbers))
        _put_to_sleep(nodes, pool, most, limits, changes)
        return 0
    rested = set(pool.rested)
    ordered = [*pool.rested, *(name for name in pool.asleep if name not in rested)]
    if need.performance > changed:
        ordered.sort(key=lambda name: nodes[name].profile == "eco")
    changes.wake.update(dict.fromkeys(ordered[:for_pods], DEMAND))
    for name in ordered[for_pods : for_pods + max(0, -surplus - len(pool.waking))]:
        if name in rested:
            changes.wake[name] = RESERVE
    return max(0, for_pods - len(ordered))


def _most_to_sleep(pool: Pool, given: PolicyNumbers) -> int:
    """At most a share of the pool sleeps, and at most a share falls asleep within an interval."""
    in_all = math.floor(given.max_share * pool.size) - len(pool.asleep)
    at_once = max(1, math.floor(given.max_step * pool.size)) - pool.fallen
    return max(0, min(in_all, at_once))


def _reserve(pool: Pool, given: PolicyNumbers) -> int:
    return math.ceil(given.reserve * pool.size)


def _awake(pool: Pool, limits: Limits) -> Counter[str]:
    """How many nodes of each group are awake."""
    names = (*pool.in_use, *pool.empty)
    return Counter(group for name in names for group in limits.groups.get(name, ()))


def _is_covered_without(name: str, limits: Limits, awake: Mapping[str, int]) -> bool:
    groups = limits.groups.get(name, ())
    return bool(groups) and all(awake[group] > 1 for group in groups)


def _put_to_sleep(
    nodes: Mapping[str, NodeState], pool: Pool, most: int, limits: Limits, changes: PowerChanges
) -> None:
    """One node of each hardware family and of each zone stays awake."""
    awake = _awake(pool, limits)
    for name in pool.empty:
        is_free = name in pool.settled and _is_covered_without(name, limits, awake)
        if most > 0 and is_free:
            changes.sleep[name] = IDLE
            awake.subtract(limits.groups[name])
            most -= 1
    _compare(nodes, pool, changes)


def _compare(nodes: Mapping[str, NodeState], pool: Pool, changes: PowerChanges) -> None:
    """Says of a node that falls asleep what it draws, where others of its pool draw less."""
    asleep = [name for name in pool.empty if name in changes.sleep]
    others = [name for name in (*pool.in_use, *pool.empty) if name not in changes.sleep]
    if not asleep or not others:
        return
    least = min(others, key=lambda name: rounded_idle_mw(nodes[name]))
    unit = "card" if pool.has_cards else "core"
    for name in asleep:
        if rounded_idle_mw(nodes[name]) > rounded_idle_mw(nodes[least]):
            changes.sleep[name] = (
                f"{IDLE}: it {_idle_power(nodes[name])} per {unit} when idle, and {least} "
                f"{_idle_power(nodes[least])}"
            )


def _cover(pool: Pool, limits: Limits, changes: PowerChanges) -> None:
    """Wakes a node of each family and zone of which no node is awake any more."""
    covered = {
        group
        for name in (*pool.in_use, *pool.empty, *pool.waking, *changes.wake)
        for group in limits.groups.get(name, ())
    }
    for name in pool.asleep:
        groups = limits.groups.get(name, ())
        if not covered.issuperset(groups):
            changes.wake[name] = COVERS
            covered.update(groups)


def _idle_power(node: NodeState) -> str:
    source = "draws" if node.idle_mw else "is rated at"
    return f"{source} {idle_mw_per_unit(node) / 1000:.1f} W"


def _check(
    nodes: Mapping[str, NodeState], pool: Pool, limits: Limits, changes: PowerChanges
) -> None:
    """Wakes a node that has slept for long, one after the other: to see that it still wakes up."""
    if pool.waking or changes.wake or not pool.asleep:
        return
    longest = min(pool.asleep, key=lambda name: (nodes[name].power_at, name))
    if nodes[longest].power_at < limits.before(_LONGEST_SLEEP_S):
        changes.wake[longest] = CHECKED


def _keep_unsettled(nodes: Mapping[str, NodeState], limits: Limits, changes: PowerChanges) -> None:
    """Nodes that became empty or woke up a short while ago stay awake."""
    since = limits.before(limits.numbers.sleep_after_s)
    for name in list(changes.sleep):
        has_pods = changes.sleep[name] == EMPTIES
        if (nodes[name].empty_since > since and not has_pods) or nodes[name].power_at > since:
            del changes.sleep[name]


# --- nodes that are to become empty -----------------------------------------------------------


def _empty_out(
    nodes: Mapping[str, NodeState], pool: Pool, limits: Limits, changes: PowerChanges
) -> None:
    """Orders the least used node to sleep although pods run there. It is cordoned at once, and
    switched off when they have ended; the other nodes in use have room for what follows them."""
    awake = Counter(
        group for name in (*pool.in_use, *pool.empty) for group in limits.groups.get(name, ())
    )
    awake.subtract(group for name in changes.sleep for group in limits.groups.get(name, ()))
    room = sum(nodes[name].cpu_milli - nodes[name].load.cpu_milli for name in pool.in_use)
    least = sorted(pool.in_use, key=lambda name: (nodes[name].load.cpu_milli, name))
    for name in least:
        node, groups = nodes[name], limits.groups.get(name, ())
        others = room - (node.cpu_milli - node.load.cpu_milli)
        has_room = others >= 2 * node.load.cpu_milli
        covered = bool(groups) and all(awake[group] > 1 for group in groups)
        if has_room and covered and _is_nearly_empty(node, limits.numbers.empty_below):
            changes.sleep[name] = EMPTIES
            return


def _is_nearly_empty(node: NodeState, share: float) -> bool:
    used = node.load.gpu_standard_milli + node.load.gpu_performance_milli
    is_idle = not (node.performance_pods or node.draining or is_empty(node)) and node.profile
    fits = node.load.cpu_milli <= share * node.cpu_milli and used <= share * node.gpu_milli
    return bool(is_idle) and fits


def _wake_those_in_use(
    nodes: Mapping[str, NodeState],
    pods: Mapping[str, PodState],
    limits: Limits,
    changes: PowerChanges,
) -> None:
    """Nodes with pods wake up again, unless these pods were there when the node was to empty."""
    in_use = {n: node for n, node in nodes.items() if node.power_state == "asleep"}
    in_use = {n: node for n, node in in_use.items() if node.pods > node.daemon_pods}
    changes.wake.update(dict.fromkeys(in_use, IN_USE))
    if not limits.numbers.empty_below or not in_use:
        return
    arrived = {
        each.node
        for each in pods.values()
        if each.node in in_use and not each.finished and each.bound_at > in_use[each.node].power_at
    }
    since = limits.before(_EMPTY_TIMEOUT_S)
    for name in [name for name in in_use if name not in arrived]:
        if in_use[name].power_at < since:
            changes.wake[name] = OVERDUE
        else:
            del changes.wake[name]


def _evict(
    nodes: Mapping[str, NodeState],
    cluster_state: ClusterState,
    limits: Limits,
    changes: PowerChanges,
) -> None:
    """Orders to evict the pods of one node that was to empty itself, if all fit elsewhere."""
    if not limits.numbers.evict_per_min:
        return
    ordered = {n: node for n, node in nodes.items() if node.power_state == "asleep"}
    ordered = {n: node for n, node in ordered.items() if node.pods > node.daemon_pods}
    if any(node.evict_at for node in ordered.values()):
        return  # one node after the other
    since = limits.before(limits.numbers.evict_after_s)
    for name in sorted(ordered, key=lambda name: (ordered[name].power_at, name)):
        is_due = ordered[name].power_at <= since and name not in changes.wake
        if is_due and _fits_elsewhere(name, ordered[name], cluster_state):
            changes.evict[name] = UNENDED
            return


def _fits_elsewhere(name: str, node: NodeState, cluster_state: ClusterState) -> bool:
    """No pod of the node is of class performance or critical, and others have room for all."""
    pods = [each.pod for each in cluster_state.pods.values() if each.node == name]
    pods = [pod for pod in pods if not cluster_state.pods[pod.uid].finished]
    movable = [pod for pod in pods if not pod.exempt]
    if node.performance_pods or len(movable) != node.pods - node.daemon_pods:
        return False
    free = FreeNodes(cluster_state.nodes)
    return all(free.take(pod) is not None for pod in movable)
