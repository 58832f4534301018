"""Power targets: how far eco nodes are capped so that the cluster or a feed draws no more.

One level of caps holds for the eco nodes of a feed: the highest at which the nodes are expected to
draw less than the target. What a node will draw follows from its reading and its present caps, so a
plan depends on no earlier plan. Nodes differ by at most one percent, which makes the level finer.
If the lowest level does not suffice, the nodes of the feed are closed to class standard, and the
plan says what remains. `budget` divides the target; here is what follows for the nodes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from joulie_operator.planning.caps import Caps, current_caps
from joulie_operator.planning.eligible import is_covered, selector
from joulie_operator.planning.power.budget import (
    FULL,
    SAFE_INPUT,
    Feed,
    Kept,
    floor_permille,
    highest_level,
    safe_level,
    share_inputs,
    shares,
)
from joulie_operator.planning.power.cards import Uses, card_uses
from joulie_operator.planning.power.consent import CARDS, kinds_expected, kinds_set
from joulie_operator.planning.power.limitable import (
    Limitable,
    Reach,
    has_settled,
    is_silent,
    limitable,
    limitable_cards,
    pct,
    rise_mw,
    silent_mw,
)
from joulie_operator.planning.rules import Rules, numbers
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.twin.totals import measurement_of, rack_of
from joulie_projections.twin.twin import hardware_of

FEED_LABEL = "joulie.io/feed"
CLUSTER_FEED = ""
RACK = "rack:"  # before the name of a rack, where a target is of a rack and not of a feed
TARGET_NUMBER = "power_target_w"  # in POLICY_NUMBERS
_BAND = (960, 995)  # parts per thousand of a target: outside, caps change, and aim within
_OPENS = 900  # nodes are opened when the lowest caps are expected to leave this room
_FRESH_S = 300.0
_LONGEST_SETTLING_NS = 30_000_000_000
_FALLING_NS = 60_000_000_000  # from the order to sleep to a reading that shows it

CLOSES = "caps alone do not meet the power target"
ROOM = "the power target leaves room for pods"
NEVER = 2**63 - 1
NO_TARGET = "no power target is in force"


class TargetInForce(NamedTuple):
    feed: str
    power_mw: int
    because: str = ""
    ends_at: int = NEVER


class PowerLimits(NamedTuple):
    """The caps that targets demand of eco nodes, and what they cannot reach by caps."""

    percent: Mapping[str, int]  # by node
    kept: frozenset[str]  # nodes whose caps are not raised, because the power is as it should be
    headroom_mw: Mapping[str, int]  # by feed in force; below 0 is what has to be saved otherwise
    drawn_mw: Mapping[str, int]  # by node
    inputs: Mapping[str, float]
    because: tuple[str, ...]
    closes: Mapping[str, str]  # nodes that get no more pods of class standard, and why
    opens: Mapping[str, str]
    cards: Mapping[str, int]  # by other nodes: the caps in per cent of cards of class standard

    def applied(self, name: str, caps: Caps, node: NodeState) -> Caps:
        """The caps of the node's class, or lower ones."""
        if name in self.kept:
            caps = _lower(caps, current_caps(node))
        percent = self.percent.get(name)
        return caps if percent is None else limited(caps, percent, node)

    def of_cards(self, name: str) -> int | None:
        percent = self.cards.get(name, 100)
        return percent if percent < 100 else None


NO_LIMITS = PowerLimits({}, frozenset(), {}, {}, {}, (), {}, {}, {})


def targets_in_force(cluster_state: ClusterState, rules: Rules, now: int) -> list[TargetInForce]:
    """The lowest target of each feed: of the settings, and of the log."""
    given = [TargetInForce(feed, mw) for feed, mw in standing_targets(rules.policy_numbers).items()]
    given += [
        TargetInForce(target.feed, target.power_mw, target.because, target.ends_at)
        for target in cluster_state.targets.values()
        if target.starts_at <= now < target.ends_at
    ]
    lowest: dict[str, TargetInForce] = {}
    for target in sorted(given):
        lowest.setdefault(target.feed, target)
    return list(lowest.values())


def standing_targets(policy_numbers: str) -> dict[str, int]:
    """Milliwatts by feed: the numbers `power_target_w`, and `power_target_w.FEED` of a feed."""
    return {
        name.removeprefix(TARGET_NUMBER).removeprefix("."): round(1000 * watts)
        for name, watts in numbers(policy_numbers).items()
        if is_target_number(name)
    }


def is_target_number(name: str) -> bool:
    return name.partition(".")[0] == TARGET_NUMBER


def power_limits(
    cluster_state: ClusterState,
    rules: Rules,
    now: int,
    class_caps: Callable[[], Mapping[str, Caps]],
    rising: Callable[[], Collection[str]],
    planned: Collection[str] = (),
) -> PowerLimits:
    """`class_caps` are the caps of the eco nodes that may be capped at present, `rising` the nodes
    whose caps this plan lifts, and `planned` all nodes of the plan."""
    targets = targets_in_force(cluster_state, rules, now)
    if not targets:
        closed = (name for name, node in cluster_state.nodes.items() if node.closed_at)
        opens = dict.fromkeys(closed, NO_TARGET)
        return NO_LIMITS._replace(opens=opens) if opens else NO_LIMITS
    nodes, drawn = cluster_state.nodes, _drawn(cluster_state.nodes, now)
    capped = class_caps()
    uses = _single_cards(cluster_state, [n for n in planned if n not in capped], now)
    present = _Present(nodes, drawn, capped, rising(), rules, now, uses)
    division = _Division(present)
    for target in targets:
        division.add(target, _feed_of(target, present))
    return division.limits()


class _Present(NamedTuple):
    """What a plan knows of the nodes."""

    nodes: Mapping[str, NodeState]
    drawn: Mapping[str, int]
    capped: Mapping[str, Caps]  # of eco nodes that may be capped: the caps of the class
    lifted: Collection[str]  # nodes whose caps this plan lifts
    rules: Rules
    now: int
    uses: Mapping[str, Uses]  # of the cards of other nodes whose cards may be capped one by one

    def limitable_cards(self, name: str) -> Limitable:
        node = self.nodes[name]
        silent = is_silent(node, self.now)
        return limitable_cards(name, node, self.uses[name], self.drawn[name], silent=silent)

    def limitable(self, name: str) -> Limitable:
        node, caps, drawn_mw = self.nodes[name], self.capped[name], self.drawn[name]
        kinds = kinds_expected(node, self.now, assumed=self.rules.eco_without_caps)
        reach = Reach(kinds, is_silent(node, self.now))
        return limitable(name, node, caps, drawn_mw, reach)

    def floor(self) -> int:
        return floor_permille(numbers(self.rules.policy_numbers))


def _single_cards(state: ClusterState, names: Collection[str], now: int) -> Mapping[str, Uses]:
    """The cards of these nodes, where the writer can set each of them by itself."""
    nodes = state.nodes
    return card_uses(state, {name for name in names if CARDS in kinds_set(nodes[name], now)})


class _Division:
    """Divides one target after the other, and collects what follows for each node."""

    def __init__(self, present: _Present) -> None:
        self._nodes, self._drawn, self._rules = present.nodes, present.drawn, present.rules
        self._percent, self._cards = dict[str, int](), dict[str, int]()
        self._kept, self._closed = set[str](), set[str]()
        self._headroom, self._inputs = dict[str, int](), dict[str, float]()
        self._because = list[str]()

    def add(self, target: TargetInForce, feed: Feed) -> None:
        watts = {"target_w": target.power_mw / 1000, "drawn_w": feed.total_mw / 1000}
        self._inputs |= feed.named(watts)
        is_closed = _is_closed(feed, self._nodes, target)
        self._closed.update(feed.members if is_closed else ())
        safe = safe_level(feed, self._nodes, target.power_mw)
        self._inputs |= feed.named({SAFE_INPUT: safe})
        if feed.stays:
            self._kept.update(each.name for each in feed.eco)
            for each in feed.cards:
                self._cap_cards(each.name, pct(self._nodes[each.name].standard_gpu_cap_pct))
            self._headroom[target.feed] = max(0, target.power_mw - feed.total_mw - feed.more_mw)
        else:
            self._cap(target, feed, is_closed=is_closed)

    def _cap(self, target: TargetInForce, feed: Feed, *, is_closed: bool) -> None:
        level, expected = highest_level(feed, target.power_mw)
        self._headroom[target.feed] = target.power_mw - expected
        self._inputs |= feed.named({"eco_cap_permille": level})
        for each in feed.eco:
            self._percent[each.name] = min(self._percent.get(each.name, 100), each.percent(level))
        for each in feed.cards:
            self._cap_cards(each.name, each.percent(level))
        self._because.append(_sentence(target, feed.total_mw, level, is_closed=is_closed))
        self._explain(target, feed, level, expected)

    def _cap_cards(self, name: str, percent: int) -> None:
        self._cards[name] = min(self._cards.get(name, 100), percent)

    def _explain(self, target: TargetInForce, feed: Feed, level: int, expected_mw: int) -> None:
        kept = Kept.of(feed, self._nodes, self._drawn)
        for share in shares(feed, self._nodes, self._drawn, level):
            self._inputs |= share_inputs(share)
        self._inputs |= feed.named(
            {
                "expected_w": expected_mw / 1000,
                "performance_w": kept.performance_mw / 1000,
                "out_of_reach_w": kept.out_of_reach_mw / 1000,
            }
        )
        if expected_mw > target.power_mw:
            self._because.append(_shortfall(target, feed, kept, expected_mw))

    def limits(self) -> PowerLimits:
        closes, opens = _placement(self._nodes, self._closed, selector(self._rules.selector))
        return PowerLimits(
            self._percent,
            frozenset(self._kept),
            self._headroom,
            self._drawn,
            self._inputs,
            tuple(self._because),
            closes,
            opens,
            self._cards,
        )


def _placement(
    nodes: Mapping[str, NodeState], closed: Collection[str], selector: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The nodes to close and to open."""
    ours = {n: node for n, node in nodes.items() if is_covered(node, selector)}
    closing = [n for n, node in ours.items() if n in closed and not node.closed_at]
    closing = [n for n in closing if not ours[n].power_state]
    opening = [n for n, node in nodes.items() if node.closed_at and n not in closed]
    return dict.fromkeys(closing, CLOSES), dict.fromkeys(opening, ROOM)


def _is_closed(feed: Feed, nodes: Mapping[str, NodeState], target: TargetInForce) -> bool:
    """Whether the feed gets no more pods of class standard: what the lowest caps are expected to
    save decides. Between two limits, and while the last caps do not show yet, it stays as it is."""
    least_mw = feed.expected_mw(feed.floor)
    if least_mw > target.power_mw and not feed.settles:
        return True
    was_closed = any(nodes[name].closed_at for name in feed.members)
    has_room = least_mw * FULL <= target.power_mw * _OPENS
    return was_closed and (feed.settles or not has_room)


def by_feed(inputs: Mapping[str, float], name: str) -> dict[str, float]:
    """One input of a plan, for each feed in it; the cluster's has no name."""
    found = {key.removeprefix(name): value for key, value in inputs.items() if key.startswith(name)}
    return {suffix.removeprefix("_"): value for suffix, value in found.items()}


def _feed_of(target: TargetInForce, present: _Present) -> Feed:
    nodes, drawn = present.nodes, present.drawn
    members = [name for name in drawn if is_fed(nodes[name], target.feed)]
    total = sum(drawn[name] for name in members)
    eco = [present.limitable(name) for name in members if name in present.capped]
    cards = [present.limitable_cards(name) for name in members if name in present.uses]
    lifted = (name for name in members if name in present.lifted)
    rises = {name: rise_mw(nodes[name], drawn[name]) for name in lifted}
    more = sum(rises.values())
    is_settling = not more and _is_settling(nodes, members, present.now)
    stays = is_settling or _is_within(total + more, target.power_mw)
    floor = present.floor()
    return Feed(target.feed, members, total, rises, eco, stays, is_settling, floor, cards)


def _is_settling(nodes: Mapping[str, NodeState], members: Sequence[str], now: int) -> bool:
    """Whether most readings are still to show what the last change of caps has done."""
    recent = [name for name in members if now - nodes[name].caps_at < _LONGEST_SETTLING_NS]
    unsettled = sum(not has_settled(nodes[name]) for name in recent)
    return unsettled * 20 > len(members)


def _is_within(total_mw: int, target_mw: int) -> bool:
    low, high = _BAND
    return target_mw * low <= total_mw * FULL <= target_mw * high


def _sentence(target: TargetInForce, total_mw: int, level: int, *, is_closed: bool) -> str:
    of = place(target.feed)
    why = f" ({target.because})" if target.because else ""
    caps = "no caps below those of the class" if level == FULL else f"eco caps {level / 10:g} %"
    most, drawn = target.power_mw / 1_000_000, total_mw / 1_000_000
    closed = ", and no more pods of class standard" if is_closed else ""
    return f"{of} may draw {most:.3f} kW{why} and draws {drawn:.3f} kW: {caps}{closed}"


def _shortfall(target: TargetInForce, feed: Feed, kept: Kept, expected_mw: int) -> str:
    of = place(target.feed)
    left, performs, beyond = (
        f"{mw / 1_000_000:.3f} kW"
        for mw in (expected_mw - target.power_mw, kept.performance_mw, kept.out_of_reach_mw)
    )
    return (
        f"caps cannot meet the target of {of}: {left} are left above it with eco caps "
        f"{feed.floor / 10:g} %; nodes for class performance draw {performs} and keep their "
        f"limits, and nodes whose limits no writer sets draw {beyond}"
    )


def place(feed: str) -> str:
    """What a target is of, in words."""
    if feed.startswith(RACK):
        return f"rack {feed.removeprefix(RACK)}"
    return f"feed {feed}" if feed else "the cluster"


def is_fed(node: NodeState, feed: str) -> bool:
    if feed.startswith(RACK):
        return node.present and rack_of(node) == feed.removeprefix(RACK)
    return node.present and feed in (CLUSTER_FEED, node.labels.get(FEED_LABEL))


def _drawn(nodes: Mapping[str, NodeState], now: int) -> dict[str, int]:
    return {
        name: silent_mw(node) if is_silent(node, now) else _drawn_mw(node, now)
        for name, node in nodes.items()
    }


def _drawn_mw(node: NodeState, now: int) -> int:
    """A node that falls asleep draws nothing, and no program may measure it while it sleeps."""
    measured = measurement_of(node, now, _FRESH_S)
    if node.power_state == "asleep" and node.pods == node.daemon_pods:
        is_fresh = measured.age_s is not None and measured.age_s <= _FRESH_S
        if not is_fresh or now < node.power_at + _FALLING_NS:
            return 0
    return round(measured.measured_w * 1000)


# --- caps -------------------------------------------------------------------------------------


def limited(caps: Caps, percent: int, node: NodeState) -> Caps:
    """These caps, and none above the percentage. Watts are lowered with the percentage, where the
    settings give watts."""
    found = node.hardware
    cpu_mw, gpu_mw = caps.cpu_mw_per_socket, caps.gpu_mw
    if cpu_mw is not None and found is not None and found.cpu_max_mw_per_socket:
        lowered = found.cpu_max_mw_per_socket * percent // 100
        cpu_mw = min(cpu_mw, max(found.cpu_min_mw_per_socket, lowered))
    if gpu_mw is not None and found is not None and found.gpu_max_mw:
        gpu_mw = min(gpu_mw, max(found.gpu_min_mw, found.gpu_max_mw * percent // 100))
    has_cards = bool(hardware_of(node).gpus)
    return Caps(
        min(pct(caps.cpu_pct), percent),
        min(pct(caps.gpu_pct), percent) if has_cards else caps.gpu_pct,
        cpu_mw,
        gpu_mw,
    )


def _lower(one: Caps, other: Caps) -> Caps:
    """The lower of each cap; None is no cap."""
    pairs = zip(one, other, strict=True)
    return Caps(*(min((cap for cap in pair if cap is not None), default=None) for pair in pairs))
