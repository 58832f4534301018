"""How the power target of a feed is divided: feed -> rack -> node -> its processors and cards.

All nodes that may be capped have one level, so that no rack and no node pays for another. What a
node is expected to draw at this level is its share, and the shares of its nodes are those of a
rack. What cannot be lowered is divided as it is drawn: nodes with pods of class performance, and
nodes whose limits no writer sets.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from joulie_operator.planning.power.limitable import Limitable, rated_mw
from joulie_projections.state.state import NodeState
from joulie_projections.twin.totals import rack_of

AIM = 985  # parts per thousand of a target
LOWEST_PERMILLE = 300  # of the maximum: a lower cap slows work more than it saves
FLOOR_NUMBER = "power_floor_pct"  # in POLICY_NUMBERS, with every policy
SAFE_INPUT = "safe_cap_permille"  # of a plan, by feed
MOST_RACKS = 50  # that a plan lists for a feed; the others are added up
OTHERS = "others"
FULL = 1000


_RACK = "rack_"  # the prefix of a plan's inputs about one rack


class PowerShare(NamedTuple):
    """What a rack gets of a power target: the power at which its nodes are expected. Nodes without
    a label are in the rack ""."""

    feed: str
    rack: str
    nodes: int
    capped: int  # of these nodes: those that caps reach
    drawn_w: float
    share_w: float


class Feed(NamedTuple):
    """The power of a target's nodes at present."""

    name: str
    members: Sequence[str]
    total_mw: int
    rises: Mapping[str, int]  # by node whose caps this plan lifts
    eco: Sequence[Limitable]
    stays: bool  # whether the caps need no change, or the last one does not show yet
    settles: bool  # the latter
    floor: int = LOWEST_PERMILLE
    cards: Sequence[Limitable] = ()  # of other nodes: the cards of class standard

    @property
    def limited(self) -> Iterator[Limitable]:
        return chain(self.eco, self.cards)

    @property
    def more_mw(self) -> int:
        return sum(self.rises.values())

    def expected_mw(self, level: int) -> int:
        """The power of the nodes with these caps."""
        others = self.total_mw + self.more_mw - sum(each.now_mw() for each in self.limited)
        return others + sum(each.expected_mw(level) for each in self.limited)

    def named(self, inputs: Mapping[str, float]) -> dict[str, float]:
        suffix = f"_{self.name}" if self.name else ""
        return {f"{name}{suffix}": value for name, value in inputs.items()}


def highest_level(feed: Feed, target_mw: int) -> tuple[int, int]:
    """The highest level that meets the target, and the power that is expected with it."""
    level = _highest(feed, target_mw, feed.expected_mw)
    return level, feed.expected_mw(level)


def safe_level(feed: Feed, nodes: Mapping[str, NodeState], target_mw: int) -> int:
    """The level for nodes that no writer watches: the highest at which the feed meets its target,
    even if each node draws all that it may. Without one, the lowest."""
    limited = sum(part.max_mw for each in feed.eco for part in each.parts)
    awake = (nodes[name] for name in feed.members if nodes[name].power_state != "asleep")
    others = sum(map(rated_mw, awake)) - limited
    return _highest(
        feed, target_mw, lambda level: others + sum(each.most_mw(level) for each in feed.eco)
    )


def _highest(feed: Feed, target_mw: int, power_mw: Callable[[int], int]) -> int:
    """The highest level whose power meets the target; the floor if none does."""
    low, high = feed.floor, FULL
    while low < high:
        middle = (low + high + 1) // 2
        if power_mw(middle) * FULL <= target_mw * AIM:
            low = middle
        else:
            high = middle - 1
    return low


class Kept(NamedTuple):
    """What of a feed's power no cap lowers, and why."""

    performance_mw: int = 0  # nodes of class performance, and nodes on which such pods run
    out_of_reach_mw: int = 0  # other nodes: no consent to caps, or no writer sets them

    @classmethod
    def of(cls, feed: Feed, nodes: Mapping[str, NodeState], drawn: Mapping[str, int]) -> "Kept":
        limited = {each.name for each in feed.eco if each.parts}
        kept = [name for name in feed.members if name not in limited]
        cards = {each.name: each.now_mw() for each in feed.cards if each.parts}
        left = {name: drawn[name] - cards.get(name, 0) for name in kept}
        performs = sum(mw for name, mw in left.items() if _performs(nodes[name]))
        return cls(performs, sum(left.values()) - performs)


def _performs(node: NodeState) -> bool:
    return node.profile == "performance" or node.performance_pods > 0


def shares(
    feed: Feed, nodes: Mapping[str, NodeState], drawn: Mapping[str, int], level: int
) -> Iterator[PowerShare]:
    """The racks that draw the most, and the others added up. The shares add up to the power that is
    expected of the feed."""
    limited = {each.name: each for each in feed.limited if each.parts}
    racks = dict[str, list[str]]()
    for name in feed.members:
        racks.setdefault(rack_of(nodes[name]), []).append(name)
    found = [_share(feed, rack, racks[rack], limited, drawn, level) for rack in racks]
    found.sort(key=lambda share: (-share.drawn_w, share.rack))
    yield from found[:MOST_RACKS]
    if rest := found[MOST_RACKS:]:
        yield _together(rest)


def _share(
    feed: Feed,
    rack: str,
    names: Sequence[str],
    limited: Mapping[str, Limitable],
    drawn: Mapping[str, int],
    level: int,
) -> PowerShare:
    capped = [limited[name] for name in names if name in limited]
    drawn_mw = sum(drawn[name] for name in names)
    more_mw = sum(feed.rises.get(name, 0) for name in names)
    saved_mw = sum(each.now_mw() - each.expected_mw(level) for each in capped)
    return PowerShare(
        feed=feed.name,
        rack=rack,
        nodes=len(names),
        capped=len(capped),
        drawn_w=drawn_mw / 1000,
        share_w=(drawn_mw + more_mw - saved_mw) / 1000,
    )


def _together(rest: Iterable[PowerShare]) -> PowerShare:
    """Racks that are not listed one by one."""
    rest = list(rest)
    return PowerShare(
        feed=rest[0].feed,
        rack=OTHERS,
        nodes=sum(share.nodes for share in rest),
        capped=sum(share.capped for share in rest),
        drawn_w=sum(share.drawn_w for share in rest),
        share_w=sum(share.share_w for share in rest),
    )


def share_inputs(share: PowerShare) -> dict[str, float]:
    """The inputs of a plan that tell the share, such as `rack_share_w/FEED/RACK`."""
    where = f"{share.feed}/{share.rack}"
    figures = share._asdict().items()
    return {f"{_RACK}{name}/{where}": float(value) for name, value in figures if name in _FIGURES}


_FIGURES = ("nodes", "capped", "drawn_w", "share_w")


def is_of_rack(name: str) -> bool:
    return name.startswith(_RACK) and "/" in name


def shares_in(inputs: Mapping[str, float]) -> list[PowerShare]:
    """The shares that a plan tells."""
    prefix, found = f"{_RACK}nodes/", list[PowerShare]()
    for name in inputs:
        if name.startswith(prefix):
            where = name.removeprefix(prefix)
            feed, _, rack = where.partition("/")
            nodes, capped, drawn_w, share_w = (inputs[f"{_RACK}{f}/{where}"] for f in _FIGURES)
            found.append(PowerShare(feed, rack, int(nodes), int(capped), drawn_w, share_w))
    return found


def floor_permille(numbers: Mapping[str, float]) -> int:
    return round(numbers.get(FLOOR_NUMBER, LOWEST_PERMILLE / 10) * 10)
