"""Power targets: how far eco nodes are capped so that the cluster or a feed draws no more.

One level of caps holds for the eco nodes of a feed: the highest at which the nodes are expected to
draw less than the target. What a node will draw follows from its reading and its present caps, so a
plan depends on no earlier plan. Nodes differ by at most one percent, which makes the level finer.
If the lowest level does not suffice, the nodes of the feed are closed to class standard.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

from joulie_operator.planning.caps import Caps, current_caps
from joulie_operator.planning.eligible import is_covered, selector
from joulie_operator.planning.rules import Rules, numbers
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.twin.power import load_w
from joulie_projections.twin.totals import measurement_of
from joulie_projections.twin.twin import hardware_of

FEED_LABEL = "joulie.io/feed"
CLUSTER_FEED = ""
TARGET_NUMBER = "power_target_w"  # in POLICY_NUMBERS
LOWEST_PERMILLE = 300  # of the maximum: a lower cap slows work more than it saves
_FULL = 1000
# Parts per thousand of a target. Caps change while the power is outside the band, and aim within.
_AIM, _BAND = 985, (960, 995)
_OPENS = 900  # nodes are opened when the lowest caps are expected to leave this room
_FRESH_S = 300.0
_SETTLED_NS = 3_000_000_000  # from caps to a reading that shows them
_LONGEST_SETTLING_NS = 30_000_000_000
_FALLING_NS = 60_000_000_000  # from the order to sleep to a reading that shows it
_IDLE_CPU, _IDLE_CARDS = 500, 100  # idle power in parts per thousand, until a reading shows it


CLOSES = "caps alone do not meet the power target"
ROOM = "the power target leaves room for pods"
NO_TARGET = "no power target is in force"


class TargetInForce(NamedTuple):
    feed: str
    power_mw: int
    because: str = ""


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

    def applied(self, name: str, caps: Caps, node: NodeState) -> Caps:
        """The caps of the node's class, or lower ones."""
        if name in self.kept:
            return _lower(caps, current_caps(node))
        percent = self.percent.get(name)
        return caps if percent is None else _limited(caps, percent, node)


NO_CAPS = Caps()
NO_LIMITS = PowerLimits({}, frozenset(), {}, {}, {}, (), {}, {})


def targets_in_force(cluster_state: ClusterState, rules: Rules, now: int) -> list[TargetInForce]:
    """The lowest target of each feed: of the settings, and of the log."""
    given = [TargetInForce(feed, mw) for feed, mw in standing_targets(rules.policy_numbers).items()]
    given += [
        TargetInForce(target.feed, target.power_mw, target.because)
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
) -> PowerLimits:
    """`class_caps` are the caps of the eco nodes that may be capped at present, and `rising` the
    nodes whose caps this plan lifts."""
    targets = targets_in_force(cluster_state, rules, now)
    if not targets:
        nodes = cluster_state.nodes.items()
        opens = {name: NO_TARGET for name, node in nodes if node.closed_at}
        return NO_LIMITS._replace(opens=opens) if opens else NO_LIMITS
    drawn = _drawn(cluster_state.nodes, now, rules.power_model)
    capped, lifted = class_caps(), rising()
    percent, kept, headroom = dict[str, int](), set[str](), dict[str, int]()
    inputs, because, closed = dict[str, float](), list[str](), set[str]()
    for target in targets:
        feed = _feed_of(target, cluster_state.nodes, drawn, capped, lifted, now)
        inputs |= feed.named({"target_w": target.power_mw / 1000, "drawn_w": feed.total_mw / 1000})
        is_closed = rules.target_rules > 1 and _is_closed(feed, cluster_state.nodes, target)
        closed.update(feed.members if is_closed else ())
        if feed.stays:
            kept.update(each.name for each in feed.eco)
            headroom[target.feed] = max(0, target.power_mw - feed.total_mw - feed.more_mw)
            continue
        level, expected = _level(feed, target.power_mw)
        headroom[target.feed] = target.power_mw - expected
        inputs |= feed.named({"eco_cap_permille": level})
        for each in feed.eco:
            percent[each.name] = min(percent.get(each.name, 100), each.percent(level))
        because.append(_sentence(target, feed.total_mw, level, is_closed=is_closed))
    kept_nodes = frozenset(kept - percent.keys())
    closes, opens = _placement(cluster_state.nodes, closed, selector(rules.selector))
    reasons = tuple(because)
    return PowerLimits(percent, kept_nodes, headroom, drawn, inputs, reasons, closes, opens)


def _placement(
    nodes: Mapping[str, NodeState], closed: Collection[str], selector: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The nodes to close and to open."""
    ours = {n: node for n, node in nodes.items() if is_covered(node, selector)}
    closing = [n for n, node in ours.items() if n in closed and not node.closed_at]
    closing = [n for n in closing if not ours[n].power_state]
    opening = [n for n, node in nodes.items() if node.closed_at and n not in closed]
    return dict.fromkeys(closing, CLOSES), dict.fromkeys(opening, ROOM)


def _is_closed(feed: "_Feed", nodes: Mapping[str, NodeState], target: TargetInForce) -> bool:
    """Whether the feed gets no more pods of class standard: what the lowest caps are expected to
    save decides. Between two limits, and while the last caps do not show yet, it stays as it is."""
    least_mw = feed.expected_mw(LOWEST_PERMILLE)
    if least_mw > target.power_mw and not feed.settles:
        return True
    was_closed = any(nodes[name].closed_at for name in feed.members)
    has_room = least_mw * _FULL <= target.power_mw * _OPENS
    return was_closed and (feed.settles or not has_room)


class _Feed(NamedTuple):
    """The power of a target's nodes at present."""

    name: str
    members: Sequence[str]
    total_mw: int
    more_mw: int  # of nodes whose caps this plan lifts
    eco: "Sequence[Limitable]"
    stays: bool  # whether the caps need no change, or the last one does not show yet
    settles: bool  # the latter

    def expected_mw(self, level: int) -> int:
        """The power of the nodes with these caps."""
        others = self.total_mw + self.more_mw - sum(each.now_mw() for each in self.eco)
        return others + sum(each.expected_mw(level) for each in self.eco)

    def named(self, inputs: Mapping[str, float]) -> dict[str, float]:
        suffix = f"_{self.name}" if self.name else ""
        return {f"{name}{suffix}": value for name, value in inputs.items()}


def by_feed(inputs: Mapping[str, float], name: str) -> dict[str, float]:
    """One input of a plan, for each feed in it; the cluster's has no name."""
    found = {key.removeprefix(name): value for key, value in inputs.items() if key.startswith(name)}
    return {suffix.removeprefix("_"): value for suffix, value in found.items()}


def _feed_of(
    target: TargetInForce,
    nodes: Mapping[str, NodeState],
    drawn: Mapping[str, int],
    capped: Mapping[str, Caps],
    lifted: Collection[str],
    now: int,
) -> _Feed:
    members = [name for name in drawn if is_fed(nodes[name], target.feed)]
    total = sum(drawn[name] for name in members)
    eco = [_limitable(n, nodes[n], capped[n], drawn[n]) for n in members if n in capped]
    more = sum(_limitable(n, nodes[n], NO_CAPS, drawn[n]).rise_mw() for n in members if n in lifted)
    is_settling = not more and _is_settling(nodes, members, now)
    stays = is_settling or _is_within(total + more, target.power_mw)
    return _Feed(target.feed, members, total, more, eco, stays, is_settling)


def _is_settling(nodes: Mapping[str, NodeState], members: Sequence[str], now: int) -> bool:
    """Whether most readings are still to show what the last change of caps has done."""
    recent = [name for name in members if now - nodes[name].caps_at < _LONGEST_SETTLING_NS]
    unsettled = sum(not has_settled(nodes[name]) for name in recent)
    return unsettled * 20 > len(members)


def _is_within(total_mw: int, target_mw: int) -> bool:
    low, high = _BAND
    return target_mw * low <= total_mw * _FULL <= target_mw * high


def _sentence(target: TargetInForce, total_mw: int, level: int, *, is_closed: bool) -> str:
    of = f"feed {target.feed}" if target.feed else "the cluster"
    why = f" ({target.because})" if target.because else ""
    caps = "no caps below those of the class" if level == _FULL else f"eco caps {level / 10:g} %"
    most, drawn = target.power_mw / 1_000_000, total_mw / 1_000_000
    closed = ", and no more pods of class standard" if is_closed else ""
    return f"{of} may draw {most:.3f} kW{why} and draws {drawn:.3f} kW: {caps}{closed}"


def is_fed(node: NodeState, feed: str) -> bool:
    return node.present and feed in (CLUSTER_FEED, node.labels.get(FEED_LABEL))


def _drawn(nodes: Mapping[str, NodeState], now: int, model: int) -> dict[str, int]:
    return {name: _drawn_mw(node, now, model) for name, node in nodes.items()}


def _drawn_mw(node: NodeState, now: int, model: int) -> int:
    """A node that falls asleep draws nothing, and no program may measure it while it sleeps."""
    measured = measurement_of(node, now, _FRESH_S, model=model)
    if node.power_state == "asleep" and node.pods == node.daemon_pods:
        is_fresh = measured.age_s is not None and measured.age_s <= _FRESH_S
        if not is_fresh or now < node.power_at + _FALLING_NS:
            return 0
    return round(measured.measured_w * 1000)


# --- nodes ------------------------------------------------------------------------------------


class Part(NamedTuple):
    """The processors or the cards of a node."""

    max_mw: int
    now_mw: int
    least_mw: int  # what it draws whatever its cap is
    class_pct: int
    cap_pct: int
    factor: int = _FULL  # what it draws of its cap in parts per thousand, such as its fans

    def expected_mw(self, percent: int) -> int:
        """A part that draws what its cap allows will draw what a higher one allows."""
        limit = self._allowed(min(percent, self.class_pct))
        natural = self.now_mw
        if self.cap_pct < self.class_pct and natural * 100 >= self._allowed(self.cap_pct) * 97:
            natural = max(natural, self._allowed(self.class_pct))
        return min(natural, max(limit, min(self.now_mw, self.least_mw)))

    def _allowed(self, percent: int) -> int:
        return self.max_mw * percent * self.factor // (100 * _FULL)


class Limitable(NamedTuple):
    """An eco node."""

    name: str
    turn: int  # 0 to 9: which nodes have the higher one of two percentages
    parts: tuple[Part, ...]

    def percent(self, level: int) -> int:
        return min(100, (level + self.turn) // 10)

    def expected_mw(self, level: int) -> int:
        return sum(part.expected_mw(self.percent(level)) for part in self.parts)

    def now_mw(self) -> int:
        return sum(part.now_mw for part in self.parts)

    def rise_mw(self) -> int:
        """What the node may draw more once its caps are those of its class."""
        return sum(part.expected_mw(100) - part.now_mw for part in self.parts)


def _limitable(name: str, node: NodeState, class_caps: Caps, drawn_mw: int) -> Limitable:
    parts = _parts(node, class_caps, drawn_mw)
    if has_settled(node):
        parts = map(_as_read, parts)
    return Limitable(name, crc32(name.encode()) % 10, tuple(parts))


def has_settled(node: NodeState) -> bool:
    """Whether a reading shows the present caps."""
    return bool(node.samples) and node.samples[-1].at > node.caps_at + _SETTLED_NS


def _as_read(part: Part) -> Part:
    """A part above its cap: a little by its fans, or much because it is idle and draws no less."""
    allowed = part.max_mw * part.cap_pct // 100
    if part.now_mw <= allowed or not allowed:
        return part
    if part.now_mw * 10 <= allowed * 11:
        return part._replace(factor=part.now_mw * _FULL // allowed)
    return part._replace(least_mw=part.now_mw)


def _parts(node: NodeState, class_caps: Caps, drawn_mw: int) -> Iterator[Part]:
    """Splits a reading into processors and cards as the requests of the pods do."""
    found, now = hardware_of(node), current_caps(node)
    cpu_mw = round(found.cpu_max_w * 1000)
    cards_mw = round(found.gpu_max_w * found.gpus * 1000)
    idle_cpu, idle_cards = cpu_mw * _IDLE_CPU // _FULL, cards_mw * _IDLE_CARDS // _FULL
    used = load_w(node.load, found.cores, found.cpu_max_w, found.gpus, found.gpu_max_w)
    used_cpu, used_cards = round(used.cpu), round(used.gpu_standard + used.gpu_performance)
    dynamic = max(0, drawn_mw - idle_cpu - idle_cards)
    of_cards = dynamic * used_cards // (used_cpu + used_cards) if used_cpu + used_cards else 0
    cards_now = min(drawn_mw, idle_cards + of_cards) if cards_mw else 0
    yield Part(cpu_mw, drawn_mw - cards_now, idle_cpu, _pct(class_caps.cpu_pct), _pct(now.cpu_pct))
    if cards_mw:
        yield Part(cards_mw, cards_now, idle_cards, _pct(class_caps.gpu_pct), _pct(now.gpu_pct))


def _pct(percent: int | None) -> int:
    return 100 if percent is None else percent


def _level(feed: _Feed, target_mw: int) -> tuple[int, int]:
    """The highest level that meets the target, and the power that is expected with it."""
    low, high = LOWEST_PERMILLE, _FULL
    while low < high:
        middle = (low + high + 1) // 2
        if feed.expected_mw(middle) * _FULL <= target_mw * _AIM:
            low = middle
        else:
            high = middle - 1
    return low, feed.expected_mw(low)


# --- caps -------------------------------------------------------------------------------------


def _limited(caps: Caps, percent: int, node: NodeState) -> Caps:
    """Watts are lowered with the percentage, where the settings give watts."""
    found = node.hardware
    cpu_mw, gpu_mw = caps.cpu_mw_per_socket, caps.gpu_mw
    if cpu_mw is not None and found is not None and found.cpu_max_mw_per_socket:
        lowered = found.cpu_max_mw_per_socket * percent // 100
        cpu_mw = min(cpu_mw, max(found.cpu_min_mw_per_socket, lowered))
    if gpu_mw is not None and found is not None and found.gpu_max_mw:
        gpu_mw = min(gpu_mw, max(found.gpu_min_mw, found.gpu_max_mw * percent // 100))
    has_cards = bool(hardware_of(node).gpus)
    return Caps(
        min(_pct(caps.cpu_pct), percent),
        min(_pct(caps.gpu_pct), percent) if has_cards else caps.gpu_pct,
        cpu_mw,
        gpu_mw,
    )


def _lower(one: Caps, other: Caps) -> Caps:
    """The lower of each cap; None is no cap."""
    pairs = zip(one, other, strict=True)
    return Caps(*(min((cap for cap in pair if cap is not None), default=None) for pair in pairs))


def idle_mw_of(node: NodeState) -> int:
    """An estimate of what an empty node draws."""
    found = hardware_of(node)
    cpu, cards = found.cpu_max_w * _IDLE_CPU, found.gpu_max_w * found.gpus * _IDLE_CARDS
    return round(cpu + cards)
