"""What a cap can save on one node: its processors and cards, with what they draw and may draw.

A reading is of a whole node. It is split into processors and cards as the requests of its pods are.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple
from zlib import crc32

from joulie_operator.planning.caps import Caps, current_caps
from joulie_operator.planning.power.cards import Uses, used_cards
from joulie_operator.planning.power.consent import CPU, GPU, KINDS
from joulie_projections.state.state import NodeState
from joulie_projections.twin.power import load_w
from joulie_projections.twin.twin import caps_in_effect, hardware_of, node_cards

NO_CAPS = Caps()
SILENT_NS = 120_000_000_000  # without a reading for so long, a node may draw what its caps allow
_FULL = 1000
_SETTLED_NS = 3_000_000_000  # from caps to a reading that shows them
_IDLE_CPU, _IDLE_CARDS = 500, 100  # idle power in parts per thousand, until a reading shows it


class Part(NamedTuple):
    """The processors or the cards of a node."""

    max_mw: int
    now_mw: int
    least_mw: int  # what it draws whatever its cap is
    class_pct: int
    cap_pct: int
    factor: int = _FULL  # what it draws of its cap in parts per thousand, such as its fans
    low_mw: int = 0  # the lowest cap that it accepts
    near_pct: int = 97  # of its cap: from here on it would draw more without one

    def expected_mw(self, percent: int) -> int:
        """A part that draws what its cap allows will draw what a higher one allows."""
        limit = self._allowed(min(percent, self.class_pct))
        natural = self.now_mw
        if (
            self.cap_pct < self.class_pct
            and natural * 100 >= self._allowed(self.cap_pct) * self.near_pct
        ):
            natural = max(natural, self._allowed(self.class_pct))
        return min(natural, max(limit, min(self.now_mw, self.least_mw)))

    def most_mw(self, percent: int) -> int:
        """What it may draw under this cap, whatever it draws at present."""
        limit = self._allowed(min(percent, self.class_pct))
        return max(limit, min(self.now_mw, self.least_mw))

    def at_its_cap(self) -> "Part":
        """Idle power is drawn under any cap."""
        allowed = self._allowed(min(self.cap_pct, self.class_pct))
        return self._replace(now_mw=max(allowed, self.least_mw))

    def _allowed(self, percent: int) -> int:
        cap = max(self.low_mw * 100, self.max_mw * percent)
        return cap * self.factor // (100 * _FULL)


class Limitable(NamedTuple):
    """An eco node, with those parts of it whose limits are set when they are ordered."""

    name: str
    turn: int  # 0 to 9: which nodes have the higher one of two percentages
    parts: tuple[Part, ...]

    def percent(self, level: int) -> int:
        return _percent(self.turn, level)

    def expected_mw(self, level: int) -> int:
        return sum(part.expected_mw(self.percent(level)) for part in self.parts)

    def most_mw(self, level: int) -> int:
        return sum(part.most_mw(self.percent(level)) for part in self.parts)

    def now_mw(self) -> int:
        return sum(part.now_mw for part in self.parts)


class Reach(NamedTuple):
    """What a plan may count on at a node."""

    kinds: Collection[str] = KINDS  # of limits that are set
    silent: bool = False  # its readings have stopped: it is taken to draw what its caps allow


_NEAR_PCT = 90  # of the cap; the reading of a node does not tell its parts so well


def rise_mw(node: NodeState, drawn_mw: int) -> int:
    """What the node may draw more without its caps."""
    parts = (part for _, part in _parts(node, NO_CAPS, drawn_mw))
    read = (_as_read(part) if has_settled(node) else part for part in parts)
    return sum(part.expected_mw(100) - part.now_mw for part in read)


def limitable(
    name: str, node: NodeState, class_caps: Caps, drawn_mw: int, reach: Reach
) -> Limitable:
    parts = _within_caps(node, dict(_parts(node, class_caps, drawn_mw)))
    found = [part for kind, part in parts.items() if kind in reach.kinds]
    if reach.silent:
        found = [part.at_its_cap() for part in found]
    elif has_settled(node):
        found = [_as_read(part) for part in found]
    return Limitable(name, _turn(name), tuple(found))


def limitable_cards(
    name: str, node: NodeState, uses: Uses, drawn_mw: int, *, silent: bool
) -> Limitable:
    """The cards of class standard on a node whose other cards keep their caps. What the cards draw
    is divided among those in use."""
    standard, others = used_cards(uses)
    whole = dict(_parts(node, current_caps(node), drawn_mw)).get(GPU)
    if whole is None or not standard or node.hardware is None or not node.hardware.gpu_max_mw:
        return Limitable(name, _turn(name), ())
    idle_mw = whole.least_mw * standard // max(len(uses), node_cards(node))
    above_mw = max(0, whole.now_mw - whole.least_mw) * standard // (standard + others)
    part = Part(
        max_mw=node.hardware.gpu_max_mw * standard,
        now_mw=idle_mw + above_mw,
        least_mw=idle_mw,
        class_pct=whole.cap_pct,
        cap_pct=min(whole.cap_pct, pct(node.standard_gpu_cap_pct)),
        low_mw=min(node.hardware.gpu_min_mw, node.hardware.gpu_max_mw) * standard,
        near_pct=_NEAR_PCT,
    )
    if silent:
        part = part.at_its_cap()
    elif has_settled(node):  # what the split gives them above their cap, others have drawn
        part = part._replace(now_mw=min(part.now_mw, part.most_mw(part.cap_pct)))
    return Limitable(name, _turn(name), (part,))


def _within_caps(node: NodeState, parts: Mapping[str, Part]) -> dict[str, Part]:
    """Cards take no cap below the lowest that they accept (the kernel names none of processors).
    What the split gives one part above its cap, the other one has drawn below its own."""
    found = {kind: part._replace(near_pct=_NEAR_PCT) for kind, part in parts.items()}
    if GPU not in found:
        return found
    found[GPU] = found[GPU]._replace(low_mw=_lowest_mw(node))
    if not has_settled(node):
        return found
    for one, other in ((CPU, GPU), (GPU, CPU)):
        above = max(0, found[one].now_mw - found[one].most_mw(found[one].cap_pct))
        room = max(0, found[other].most_mw(found[other].cap_pct) - found[other].now_mw)
        moved = min(above, room)
        found[one] = found[one]._replace(now_mw=found[one].now_mw - moved)
        found[other] = found[other]._replace(now_mw=found[other].now_mw + moved)
    return found


def _lowest_mw(node: NodeState) -> int:
    found = node.hardware
    return min(found.gpu_min_mw, found.gpu_max_mw) * found.gpu_count if found is not None else 0


def percent_of(name: str, level: int) -> int:
    """The cap of a node at this level."""
    return _percent(_turn(name), level)


def _turn(name: str) -> int:
    return crc32(name.encode()) % 10


def _percent(turn: int, level: int) -> int:
    return min(100, (level + turn) // 10)


def is_silent(node: NodeState, now: int) -> bool:
    """Whether the readings of a node that is awake have stopped. One that was never read has a
    model instead."""
    return bool(node.samples and not node.power_state and now > node.samples[-1].at + SILENT_NS)


def silent_mw(node: NodeState) -> int:
    """What a node without readings may draw: what its caps allow, or its idle power if it has no
    pods."""
    if node.pods == node.daemon_pods:
        return idle_mw_of(node)
    found, (cpu_pct, gpu_pct) = hardware_of(node), caps_in_effect(node)
    cpu = found.cpu_max_w * max(cpu_pct * 10, _IDLE_CPU)
    cards = found.gpu_max_w * found.gpus * max(gpu_pct * 10, _IDLE_CARDS)
    return round(cpu + cards)


def rated_mw(node: NodeState) -> int:
    """What a node may draw without any cap."""
    found = hardware_of(node)
    return round((found.cpu_max_w + found.gpu_max_w * found.gpus) * 1000)


def has_settled(node: NodeState) -> bool:
    """Whether a reading shows the present caps."""
    return bool(node.samples) and node.samples[-1].at > node.caps_at + _SETTLED_NS


def _as_read(part: Part) -> Part:
    """A part above its cap: a little by its fans, or much because it is idle and draws no less."""
    allowed = max(part.low_mw, part.max_mw * part.cap_pct // 100)
    if part.now_mw <= allowed or not allowed:
        return part
    if part.now_mw * 10 <= allowed * 11:
        return part._replace(factor=part.now_mw * _FULL // allowed)
    return part._replace(least_mw=part.now_mw)


def _parts(node: NodeState, class_caps: Caps, drawn_mw: int) -> Iterator[tuple[str, Part]]:
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
    cpu_pct, gpu_pct = pct(class_caps.cpu_pct), pct(class_caps.gpu_pct)
    yield CPU, Part(cpu_mw, drawn_mw - cards_now, idle_cpu, cpu_pct, pct(now.cpu_pct))
    if cards_mw:
        yield GPU, Part(cards_mw, cards_now, idle_cards, gpu_pct, pct(now.gpu_pct))


def pct(percent: int | None) -> int:
    return 100 if percent is None else percent


def idle_mw_of(node: NodeState) -> int:
    """What an empty node draws: by its readings, else an estimate from its rated power."""
    if node.idle_mw:
        return node.idle_mw
    found = hardware_of(node)
    cpu, cards = found.cpu_max_w * _IDLE_CPU, found.gpu_max_w * found.gpus * _IDLE_CARDS
    return round(cpu + cards)
