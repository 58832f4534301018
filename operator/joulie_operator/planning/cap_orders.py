"""The caps that the writers on the nodes get: those of the plan, for nodes that opted in; and the
safe caps, which a power target leaves behind if orders or plans stop.

And the nodes on which the caps of class eco would be set, by the reports of the writers.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from joulie_bus.events import CapOrder, SafeCard
from joulie_operator.planning.caps import Caps, caps_for, current_caps
from joulie_operator.planning.guard import Stage, caps_profile, stage_of
from joulie_operator.planning.measured_caps import cap_choice
from joulie_operator.planning.policies import Candidate
from joulie_operator.planning.power.budget import SAFE_INPUT
from joulie_operator.planning.power.cards import Uses, card_uses, cards_mw, safe_cards
from joulie_operator.planning.power.consent import CARDS, CLOCKS, CPU, GPU, is_opted_in, kinds_set
from joulie_operator.planning.power.limitable import NO_CAPS, percent_of
from joulie_operator.planning.power_target import by_feed, is_fed, limited, targets_in_force
from joulie_operator.planning.rules import Rules, rules_of
from joulie_projections.state.state import ClusterState, NodeState

PLANS_STOP_S = 60.0  # beyond the interval of plans
LONGEST_SAFE_S = 86_400  # of a target without an end, or one that ends later
_SECOND = 1_000_000_000


def cap_orders(state: ClusterState, position: int, now: int) -> Iterator[CapOrder]:
    """One order for each node that opted in, also without a cap. Other nodes get none. While plans
    have stopped, a node has its safe caps if it has some, and so have its single cards."""
    safe, plan = _SafeCaps.of(state, now), state.plan
    ours = {n: node for n, node in state.nodes.items() if is_opted_in(node) and node.present}
    rules = rules_of(plan.settings) if plan else Rules()
    single = _SingleCards.of(state, ours, safe, rules, now)
    for name, node in ours.items():
        whole = safe.caps(name, node)
        caps = current_caps(node) if whole is None or not safe.in_force else whole
        safe_caps, of_cards = whole or NO_CAPS, single.safe(name, node)
        yield CapOrder(
            node=name,
            plan=plan.plan if plan else "",
            view=position,
            cpu_mw_per_socket=_cpu_mw(node, caps),
            gpu_mw=_gpu_mw(node, caps),
            safe_cpu_mw_per_socket=_cpu_mw(node, safe_caps),
            safe_gpu_mw=_gpu_mw(node, safe_caps),
            safe_s=safe.seconds(node) if whole or of_cards else 0,
            card_mw=single.caps(name, node, _gpu_mw(node, caps), of_cards),
            safe_cards=of_cards,
            clock_pct=None if plan is None or plan.dry_run else _clock_pct(node, rules, now),
        )


class _SingleCards(NamedTuple):
    """The cards that do not have the cap of their node. The pods that use them are looked up for
    each order: a pod of class performance does not wait for a plan."""

    state: ClusterState
    uses: Mapping[str, Uses]
    levels: Mapping[str, int]  # by node whose cards have safe caps of their own: the per cent
    rules: Rules
    safe_in_force: bool

    @classmethod
    def of(
        cls,
        state: ClusterState,
        nodes: Mapping[str, NodeState],
        safe: "_SafeCaps",
        rules: Rules,
        now: int,
    ) -> "_SingleCards":
        """Safe caps are left where a plan may cap cards one by one."""
        found = {n: safe.percent(n, of) for n, of in nodes.items() if safe.caps(n, of) is None}
        levels = {
            name: percent
            for name, percent in found.items()
            if percent is not None and CARDS in kinds_set(nodes[name], now)
        }
        mixed = {name for name, node in nodes.items() if _is_mixed(node)}
        uses = card_uses(state, mixed | levels.keys())
        return cls(state, uses, levels, rules, safe.in_force)

    def caps(
        self, name: str, node: NodeState, all_mw: int | None, safe: Mapping[str, SafeCard]
    ) -> dict[str, int | None]:
        """`all_mw` is the cap of the node, and `safe` what cards have once plans have stopped."""
        uses = self.uses.get(name)
        if not uses:
            return {}
        found = cards_mw(node, uses, all_mw, self._spared_mw(node))
        return found | {uuid: card.mw for uuid, card in safe.items() if self.safe_in_force}

    def safe(self, name: str, node: NodeState) -> dict[str, SafeCard]:
        percent, uses = self.levels.get(name), self.uses.get(name)
        if percent is None or not uses:
            return {}
        return safe_cards(self.state, node, uses, _gpu_mw(node, current_caps(node)), percent)

    def _spared_mw(self, node: NodeState) -> int | None:
        return _gpu_mw(node, caps_for("performance", node, self.rules))


def _is_mixed(node: NodeState) -> bool:
    """Whether a plan caps cards of class standard, or a pod of class performance is on a node whose
    cards are capped."""
    if node.standard_gpu_cap_pct is not None:
        return True
    return node.performance_pods > 0 and _gpu_mw(node, current_caps(node)) is not None


def _clock_pct(node: NodeState, rules: Rules, now: int) -> int | None:
    """Of settled eco nodes. The lock is of the whole node: it goes as soon as a pod of class
    performance is there."""
    percent = rules.gpu_eco_clock_pct
    if percent is None or percent >= 100 or node.labels.get(CLOCKS) != "enforce":
        return None
    settled = caps_profile(node, now, pods_known=True, settle_s=rules.caps_settle_s)
    return percent if settled == "eco" else None


def _have_stopped(state: ClusterState, now: int) -> bool:
    """A plan is published each interval, also without changes."""
    if state.plan is None:
        return False
    interval_s = rules_of(state.plan.settings).interval_s
    return now - state.planned_at > (interval_s + PLANS_STOP_S) * _SECOND


class _SafeCaps(NamedTuple):
    """The caps with which the power targets in force hold although no writer watches."""

    levels: Mapping[str, tuple[int, int]]  # by feed: the level, and the seconds until it ends
    in_force: bool = False  # plans have stopped, while orders go on

    @classmethod
    def of(cls, state: ClusterState, now: int) -> "_SafeCaps":
        plan = state.plan
        if plan is None or plan.dry_run:
            return cls({})
        levels = by_feed(plan.inputs, SAFE_INPUT)
        targets = targets_in_force(state, rules_of(plan.settings), now)
        ends = {each.feed: min(LONGEST_SAFE_S, (each.ends_at - now) // _SECOND) for each in targets}
        feeds = levels.keys() & ends.keys()
        found = {feed: (round(levels[feed]), ends[feed]) for feed in feeds}
        return cls(found, _have_stopped(state, now))

    def caps(self, name: str, node: NodeState) -> Caps | None:
        """None for nodes that the targets do not cap as a whole: those that performance pods may
        use."""
        percent = self.percent(name, node)
        if percent is None or stage_of(node) != Stage.ECO or node.performance_pods:
            return None
        return limited(current_caps(node), percent, node)

    def percent(self, name: str, node: NodeState) -> int | None:
        """The lowest level of all targets that a node counts for."""
        found = self._of(node)
        return percent_of(name, min(level for level, _ in found)) if found else None

    def seconds(self, node: NodeState) -> int:
        return max((seconds for _, seconds in self._of(node)), default=0)

    def _of(self, node: NodeState) -> list[tuple[int, int]]:
        return [of for feed, of in self.levels.items() if is_fed(node, feed)]


def capped_nodes(
    cluster_state: ClusterState, candidates: Iterable[Candidate], rules: Rules, now: int
) -> set[str]:
    """The candidates on which the caps of class eco would be ordered and set."""
    choice, nodes = cap_choice(cluster_state, rules, now), cluster_state.nodes
    return {
        each.name
        for each in candidates
        if choice.caps(each.name) and _all_are_set(nodes[each.name], rules, now)
    }


def _all_are_set(node: NodeState, rules: Rules, now: int) -> bool:
    """One kind that the writer cannot set may draw up to its own limit."""
    ordered = _ordered_kinds(node, caps_for("eco", node, rules))
    return bool(ordered) and ordered <= kinds_set(node, now)


def _ordered_kinds(node: NodeState, caps: Caps) -> set[str]:
    """The kinds of limits that an order with these caps would set."""
    ordered = {CPU: _cpu_mw(node, caps), GPU: _gpu_mw(node, caps)}
    return {kind for kind, milliwatts in ordered.items() if milliwatts is not None}


def _cpu_mw(node: NodeState, caps: Caps) -> int | None:
    """A cap in per cent needs the maximum of the hardware; without it, no cap is ordered."""
    if caps.cpu_mw_per_socket is not None:
        return caps.cpu_mw_per_socket
    return _share(caps.cpu_pct, node.hardware.cpu_max_mw_per_socket if node.hardware else 0)


def _gpu_mw(node: NodeState, caps: Caps) -> int | None:
    if caps.gpu_mw is not None:
        return caps.gpu_mw
    return _share(caps.gpu_pct, node.hardware.gpu_max_mw if node.hardware else 0)


def _share(pct: int | None, most_mw: int) -> int | None:
    return None if pct is None or pct >= 100 or not most_mw else most_mw * pct // 100
