"""One line per pod from its newest filter and prioritize answers."""

from collections.abc import Iterable
from typing import NamedTuple

from joulie_bus.events import AnyEvent, FilterDecided, PrioritizeDecided, Terms
from joulie_extender.catalogue.terms import ENERGY, HEADROOM, formula_of, watts_of
from joulie_extender.decide.explained import explained
from joulie_extender.terms.freshness import WITHOUT_DATA


class Placement(NamedTuple):
    pod: str  # namespace/name
    workload: str
    share: str  # passed/candidates
    node: str  # the node with the best score; empty if there is none
    answer: str


class _PodAnswers:
    """The newest answers for one pod."""

    def __init__(self) -> None:
        self.filter: FilterDecided | None = None
        self.prioritize: PrioritizeDecided | None = None

    def take(self, event: AnyEvent) -> None:
        """Takes entries newest first; scores older than a filter belong to an earlier attempt."""
        if isinstance(event, PrioritizeDecided) and not (self.filter or self.prioritize):
            self.prioritize = event
        if isinstance(event, FilterDecided) and self.filter is None:
            self.filter = event


def placements(newest: Iterable[AnyEvent]) -> list[Placement]:
    """Newest first. A pod that passed the filter and has no scores yet is left out."""
    pods: dict[str, _PodAnswers] = {}
    for event in newest:
        if isinstance(event, FilterDecided | PrioritizeDecided):
            pods.setdefault(event.pod.uid, _PodAnswers()).take(event)
    described = [_placement(answers.filter, answers.prioritize) for answers in pods.values()]
    return [placement for placement in described if placement is not None]


def _placement(first: FilterDecided | None, scored: PrioritizeDecided | None) -> Placement | None:
    event = scored or first
    if event is None:
        return None
    found = explained(first or event)
    if scored is None and found.passed:
        return None
    best = scored.top[0] if scored and scored.top else None
    pod, share = f"{event.pod.namespace}/{event.pod.name}", f"{found.passed}/{found.asked}"
    if best is None:
        return Placement(
            pod, event.pod.workload, share, "", f"pending: {first.reason}" if first else ""
        )
    answer = f"{best.node:<14} {best.score:4.0f} = {_terms_shown(best)}"
    return Placement(pod, event.pod.workload, share, best.node, answer)


def _terms_shown(best: Terms) -> str:
    """Those that the score rests on: one by watts has neither headroom nor cooling, and a node
    without data has none."""
    formula = formula_of(best.source)
    if formula is ENERGY:
        watts = watts_of(best)
        return f"adds {watts['marginal']:.0f} W, keeps {watts['activation']:.0f} W on"
    if formula is HEADROOM:
        cooling, added = f"cooling {best.cooling:.0f}", f"{best.marginal_w:+.0f} W"
        return f"headroom {best.headroom:.0f} %, {cooling}, {added}"
    return WITHOUT_DATA.get(best.source, f"by its {best.source}")
