"""An explained attempt as API values."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from joulie_answers.schema.responses import Attempt, Candidate, Devices, Group, Outcome
from joulie_answers.views.cluster_view import pod_brief
from joulie_answers.views.decision_text import best_text, candidate_of, refused_of
from joulie_audit.questions.devices import Takes
from joulie_audit.questions.devices import in_words as in_words_of
from joulie_audit.questions.explain import Explanation
from joulie_audit.questions.explain import Outcome as Bound
from joulie_audit.questions.gang import GangNow, in_words
from joulie_bus.core.times import MS
from joulie_bus.events import NodesInFlight, PrioritizeDecided, Terms
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import answered_scores
from joulie_extender.decide.explained import explained
from joulie_projections.state.state import PodState


class Beside(NamedTuple):
    """What is shown beside an attempt."""

    answers: Mapping[str, int] = {}  # the score of each candidate as sent to kube-scheduler
    more: Sequence[Terms] = ()  # of nodes that are not among the best
    placed_on: str = ""
    devices: Takes | None = None
    settings_unknown: str = ""


def attempt_of(found: Explanation, weights: Weights | None, beside: Beside) -> Attempt:
    """`weights` are those of its settings, if they are known."""
    scored, filtered = found.scored, found.filtered
    return Attempt(
        number=found.attempts,
        at_ms=found.decided_at // MS,
        entries=found.entries,
        pod=pod_brief(PodState(pod=found.pod)),
        view=found.view,
        view_age_ms=found.view_age_ms,
        behind_ms=found.behind_ms,
        view_text=found.view_text,
        settings=found.settings,
        preset=weights.preset if weights else None,
        settings_unknown=beside.settings_unknown,
        candidates=found.candidates,
        filtered=explained(filtered).line if filtered else "",
        refused=[refused_of(each.reason, each.refused, each.nodes) for each in found.rejections],
        reason=filtered.reason if filtered else "",
        cluster_trend_w_per_min=scored.cluster_trend_w_per_min if scored else None,
        perf_pressure=scored.perf_pressure if scored else None,
        best=best_text(scored.top, weights) if scored else "",
        tied=_tied(scored) if scored else None,
        scores=_scores(scored, weights, beside) if scored else [],
        devices=_devices(beside.devices),
        in_flight=in_flight_text(found.in_flight or ()),
    )


def _tied(scored: PrioritizeDecided) -> int:
    answers = answered_scores(scored)
    return int((answers == answers.max(initial=0)).sum())


def _devices(found: Takes | None) -> Devices | None:
    if found is None:
        return None
    names = [*found.devices]
    return Devices(node=found.node, count=found.number, names=names, text=in_words_of(found))


def in_flight_text(nodes: NodesInFlight) -> str:
    if not nodes:
        return ""
    devices = sum(each.devices for each in nodes)
    return f"{devices} devices on {len(nodes)} nodes, of pods that the view did not have yet"


def _scores(scored: PrioritizeDecided, weights: Weights | None, beside: Beside) -> list[Candidate]:
    lines, answers = [*scored.top, *beside.more], beside.answers
    shown = [
        candidate_of(terms.node, answers.get(terms.node), terms, lines[0], weights)
        for terms in lines
    ]
    placed_on = beside.placed_on
    if placed_on in answers and placed_on not in {terms.node for terms in lines}:
        shown.append(candidate_of(placed_on, answers[placed_on], None, None, weights))
    return shown


def outcome_brief(found: Bound | None) -> Outcome | None:
    if found is None:
        return None
    return Outcome(node=found.node, rank=found.rank, score=found.score, source=found.said_by)


def group_of(gang: GangNow | None) -> Group | None:
    return None if gang is None else Group(**gang._asdict(), text=in_words(gang))
