"""An entry of the decision log as a typed explanation.

The extender's `/explain`, the console and the commands render it; they share its words.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from joulie_bus.events import (
    AnyEvent,
    Basis,
    BindDecided,
    DecisionsDropped,
    FallbackAnswered,
    FilterDecided,
    OutcomeSeen,
    PodAsk,
    PreemptDecided,
    PrioritizeDecided,
    Promise,
    PromiseKey,
    SettingsDeclared,
    StateSetBack,
    Terms,
    named_values,
)
from joulie_extender.catalogue.rules import few_words_of
from joulie_extender.decide.decide import all_passed, candidate_names
from joulie_extender.decide.entry_verbs import EntryVerb
from joulie_extender.gpu.expected_loss import UNUSABLE
from joulie_extender.terms.packing import LostGpus
from joulie_projections.state.completeness import NEVER_MS, known_ms
from joulie_projections.twin.row_names import RowNames

PASSED = "passed"
WITHOUT_VIEW = "without a view of the cluster"


class RefusedNodes(NamedTuple):
    """The nodes that were refused for one reason, in the order of the request."""

    reason: str
    nodes: list[str]


class Explained(NamedTuple):
    verb: EntryVerb
    text: str  # the answer in one sentence, without the reason of a refusal
    pod: PodAsk | None = None
    basis: Basis | None = None
    asked: int = 0  # candidates
    refused_by: Mapping[str, int] = {}  # reason -> number of nodes
    reason: str = ""  # the one that kube-scheduler got
    top: Sequence[Terms] = ()  # the best candidates
    node: str = ""  # the best node, or the node of the binding
    is_bound: bool = False
    rank: int | None = None  # of that node among the scores
    cards: Sequence[str] = ()
    error: str = ""
    trend_w_per_min: float | None = None
    pressure: float | None = None

    @property
    def refused(self) -> int:
        return sum(self.refused_by.values())

    @property
    def passed(self) -> int:
        return self.asked - self.refused

    @property
    def line(self) -> str:
        """The answer with the reason of a refusal."""
        text = self.text if has_view(self.basis) else f"{self.text}, {WITHOUT_VIEW}"
        return f"{text}: {self.reason}" if self.refused and self.reason else text


def has_view(basis: Basis | None) -> bool:
    """Before its first snapshot an extender answers from an empty one, at position 0. Entries
    that use no view count as having one.
    """
    return basis is None or basis.view > 0


def view_text(basis: Basis) -> str:
    """The view that an answer used, in words."""
    if has_view(basis):
        return f"position {basis.view}, {ages_text(basis)}"
    return "none: the extender had no view of the cluster yet, so it knew no node"


def ages_text(basis: Basis) -> str:
    """Both ages of the view; entries of older versions have only one."""
    heard = f"projector seen {duration(basis.view_age_ms)} before"
    if basis.view_age_ms >= NEVER_MS:
        heard = "projector not seen yet"
    if basis.behind_ms is None:
        return heard
    if basis.behind_ms >= NEVER_MS:
        return f"behind the log by an unknown time, {heard}"
    return f"{duration(basis.behind_ms)} behind the log, {heard}"


def duration(ms: int) -> str:
    if ms >= NEVER_MS:
        return "never"
    return f"{ms} ms" if ms < 10_000 else f"{ms / 1000:.0f} s"


def behind_ms(basis: Basis | None) -> int | None:
    """None without a view, in entries of older versions, and if it was not known."""
    if basis is None or not has_view(basis) or basis.behind_ms is None:
        return None
    return known_ms(basis.behind_ms)


def view_age_ms(basis: Basis | None) -> int | None:
    """None without a view, as nothing is then old, and before a message of the projector."""
    return known_ms(basis.view_age_ms) if basis is not None and has_view(basis) else None


def explained(event: AnyEvent | None) -> Explained:
    match event:
        case FilterDecided():
            return _with_verdicts(event, "pass")._replace(verb="filter", reason=event.reason)
        case PreemptDecided():
            return _with_verdicts(event, "are worth clearing")
        case PrioritizeDecided():
            return _scored(event)
        case BindDecided():
            return _bound(event)
        case OutcomeSeen():
            return _seen(event)
        case _:
            return _without_nodes(event)


def refusals(event: FilterDecided | PreemptDecided, names: RowNames) -> list[RefusedNodes]:
    """In the order of the codes."""
    if all_passed(event.verdicts):
        return []  # the common case
    found: dict[int, list[str]] = {}
    for name, code in zip(candidate_names(event, names), event.verdicts, strict=True):
        if code:
            found.setdefault(code, []).append(name)
    return [RefusedNodes(few_words_of(code), nodes) for code, nodes in sorted(found.items())]


def _with_verdicts(event: FilterDecided | PreemptDecided, what: str) -> Explained:
    asked, codes = len(event.verdicts), sorted(set(event.verdicts))
    refused_by = {few_words_of(code): event.verdicts.count(code) for code in codes if code}
    passed = asked - sum(refused_by.values())
    nodes = f"all {asked}" if passed == asked > 1 else f"{passed} of {asked}"
    return Explained(
        verb="preempt",
        text=f"{nodes} nodes {what}",
        pod=event.pod,
        basis=event.basis,
        asked=asked,
        refused_by=refused_by,
    )


def _scored(event: PrioritizeDecided) -> Explained:
    best = event.top[0] if event.top else None
    return Explained(
        verb="prioritize",
        text=f"{best.node} scores {best.score:.1f} of 100{_for_later(best)}"
        if best
        else "no node to score",
        pod=event.pod,
        basis=event.basis,
        asked=event.candidates.count,
        top=event.top,
        node=best.node if best else "",
        trend_w_per_min=event.cluster_trend_w_per_min,
        pressure=event.perf_pressure,
    )


def _for_later(best: Terms) -> str:
    """What the best node costs the GPU pods that arrive later, where the score depends on it."""
    loss = named_values(best).get(LostGpus.name)
    if loss is None or loss >= UNUSABLE:
        return ""
    if not loss:
        return "; there GPU pods that arrive later lose least"
    return f"; there GPU pods that arrive later lose {loss:.3g} GPUs more than on another node"


def _bound(event: BindDecided) -> Explained:
    is_bound = event.outcome == "bound"
    cards = f" with {len(event.cards)} card(s)" if event.cards else ""
    why = event.outcome + (f": {event.error}" if event.error else "")
    return Explained(
        verb="bind",
        text=f"bound to {event.node}{cards}" if is_bound else f"not bound to {event.node}, {why}",
        basis=event.basis,
        node=event.node,
        is_bound=is_bound,
        cards=event.cards,
        error=event.error,
    )


def _seen(event: OutcomeSeen) -> Explained:
    rank = f", ranked {event.rank}" if event.rank is not None else ""
    behind = f", {event.regret} points behind the best" if event.regret else ""
    return Explained(
        verb="outcome",
        text=f"runs on {event.node}{rank}{behind}",
        node=event.node,
        is_bound=True,
        rank=event.rank,
    )


def _of_replica(
    event: DecisionsDropped | SettingsDeclared | PromiseKey | Promise,
) -> Explained:
    match event:
        case DecisionsDropped():
            return Explained("dropped", f"{event.count} decisions dropped: {event.why}")
        case SettingsDeclared():
            return Explained("settings", f"settings {event.settings} of {event.code}")
        case PromiseKey():
            return Explained("promise-key", "a replica started: the key of its promises")
        case Promise():
            return Explained("promise", f"signed up to {event.last} by its replica")


def _without_nodes(event: AnyEvent | None) -> Explained:
    match event:
        case FallbackAnswered():
            answer = "all" if event.answer == "open" else "none"
            text = f"fallback ({event.why}): {answer} of {event.candidates} nodes pass"
            return Explained("fallback", text, basis=event.basis, asked=event.candidates)
        case DecisionsDropped() | SettingsDeclared() | PromiseKey() | Promise():
            return _of_replica(event)
        case StateSetBack(before=""):
            return Explained("set-back", "an empty database replaced one: facts are folded again")
        case StateSetBack():
            text = f"a failover, or an older copy: nothing is lost up to position {event.position}"
            return Explained("set-back", text)
        case None:
            return Explained("unreadable", "unreadable")
        case _:
            return Explained("unreadable", f"{event.TYPE} is not an entry of the decision log")
