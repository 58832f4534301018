"""What a person must know: the warnings of the page, and nodes and targets that went wrong."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal, NamedTuple, get_args

from joulie_answers.schema.responses import Level, Part, Warning
from joulie_operator.planning.power_target import by_feed
from joulie_operator.planning.rules import rules_of
from joulie_operator.planning.sleep import sleep_numbers
from joulie_projections.state.state import ClusterState, NodeState

S = 1_000_000_000  # ns
MOST_NAMED = 100  # subjects of one kind; the others are one condition
OTHERS = "others"
Kind = Literal[
    "view.stale",
    "broker.silent",
    "database.unreadable",
    "operator.silent",
    "telemetry.missing",
    "extender.silent",
    "cards.unhealthy",
    "ledger.behind",
    "node.not-woken",
    "caps.refused",
    "target.missed",
    "log.invalid",
    "log.unsigned",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
OF_PARTS: dict[Part, Kind] = {
    "projector": "view.stale",
    "console": "view.stale",
    "broker": "broker.silent",
    "database": "database.unreadable",
    "operator": "operator.silent",
    "telemetry": "telemetry.missing",
    "extender": "extender.silent",
    "cards": "cards.unhealthy",
    "ledger": "ledger.behind",
    "log": "log.unsigned",
}


class Condition(NamedTuple):
    """`since` identifies its beginning if the log has it: a time in seconds, or an entry."""

    kind: Kind
    subject: str
    level: Level
    text: str
    since: str = ""


def conditions_of(
    warnings: Sequence[Warning], cluster_state: ClusterState, now: int
) -> list[Condition]:
    """By kind and subject, each once. `now` is the broker's clock."""
    nodes = sorted(cluster_state.nodes.items())
    return [
        *_from_warnings(warnings, cluster_state),
        *_named("node.not-woken", _not_woken(nodes, cluster_state, now)),
        *_named("caps.refused", _refusing(nodes)),
        *_named("target.missed", _missed(cluster_state)),
    ]


def log_invalid(what: str, since: str) -> Condition:
    return Condition("log.invalid", "decisions", "serious", what, since)


def _from_warnings(warnings: Sequence[Warning], state: ClusterState) -> Iterator[Condition]:
    def kind(warning: Warning) -> Kind:
        return OF_PARTS[warning.part]

    for found, group in groupby(sorted(warnings, key=kind), key=kind):
        same = list(group)
        level: Level = "serious" if any(each.level == "serious" for each in same) else "warning"
        text = " ".join(each.text for each in same)
        is_plan = found == "operator.silent"
        since = str(state.planned_at // S) if is_plan and state.planned_at else ""
        yield Condition(found, "cluster", level, text, since)


class _Found(NamedTuple):
    subject: str
    text: str
    since: str


def _named(kind: Kind, found: Iterable[_Found]) -> Iterator[Condition]:
    every = list(found)
    for each in every[:MOST_NAMED]:
        yield Condition(kind, each.subject, "serious", each.text, each.since)
    more = len(every) - MOST_NAMED
    if more > 0:
        yield Condition(kind, OTHERS, "serious", f"{more} more, of {len(every)}.")


Nodes = Sequence[tuple[str, NodeState]]


def _not_woken(nodes: Nodes, state: ClusterState, now: int) -> Iterator[_Found]:
    """By the timeout of the operator, which then wakes others instead."""
    if state.plan is None:
        return
    latest = now - int(sleep_numbers(rules_of(state.plan.settings)).wake_timeout_s * S)
    for name, node in nodes:
        if node.power_state == "waking" and node.power_at < latest:
            text = f"Node {name} was switched on {(now - node.power_at) // S} s ago and is not "
            yield _Found(name, f"{text}ready: it is left alone.", str(node.power_at // S))


def _refusing(nodes: Nodes) -> Iterator[_Found]:
    for name, node in nodes:
        if node.present and node.refused_caps:
            text = f"Node {name} refuses the caps that the operator ordered: {node.refused_caps}"
            yield _Found(name, text, str(node.caps_at // S))


def _missed(state: ClusterState) -> Iterator[_Found]:
    """By the readings that the newest plan was made from."""
    inputs = state.plan.inputs if state.plan else {}
    drawn = by_feed(inputs, "drawn_w")
    for feed, target_w in sorted(by_feed(inputs, "target_w").items()):
        if drawn.get(feed, 0.0) > target_w:
            nodes = f"The nodes of feed {feed}" if feed else "The nodes"
            text = f"{nodes} draw {drawn[feed]:.0f} W, more than their target of {target_w:.0f} W."
            yield _Found(feed or "cluster", text, str(state.planned_at // S))
