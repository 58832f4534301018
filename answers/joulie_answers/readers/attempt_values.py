"""An explained attempt as API values."""

from collections.abc import Sequence

from joulie_answers.schema.responses import Attempt, Candidate, Devices, Group, Outcome, Refused
from joulie_answers.views.cluster_view import pod_brief
from joulie_answers.views.decision_text import loss_of, term_set
from joulie_audit.questions.devices import Takes
from joulie_audit.questions.devices import in_words as in_words_of
from joulie_audit.questions.explain import Explanation
from joulie_audit.questions.explain import Outcome as Bound
from joulie_audit.questions.gang import GangNow, in_words
from joulie_bus.core.times import MS
from joulie_bus.events import NodesInFlight, Terms
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.explained import explained
from joulie_projections.state.state import PodState


def attempt_of(
    found: Explanation,
    weights: Weights | None,
    asked_for: Terms | None = None,
    devices: Takes | None = None,
) -> Attempt:
    """`weights` are those of its settings, if they are in the log."""
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
        candidates=found.candidates,
        filtered=explained(filtered).line if filtered else "",
        refused=[
            Refused(reason=each.reason, nodes=each.refused, examples=each.nodes)
            for each in found.rejections
        ],
        reason=filtered.reason if filtered else "",
        cluster_trend_w_per_min=scored.cluster_trend_w_per_min if scored else None,
        perf_pressure=scored.perf_pressure if scored else None,
        scores=_scores(scored.top if scored else (), asked_for, weights or Weights()),
        devices=_devices(devices),
        in_flight=in_flight_text(found.in_flight or ()),
    )


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


def _scores(top: Sequence[Terms], asked_for: Terms | None, weights: Weights) -> list[Candidate]:
    lines = [*top]
    if asked_for is not None and asked_for not in lines:
        lines.append(asked_for)
    return [
        Candidate(
            node=terms.node,
            verdict="",
            answer=None,
            terms=term_set(terms, weights),
            loss=loss_of(lines[0], terms, weights) if at else None,
        )
        for at, terms in enumerate(lines)
    ]


def outcome_brief(found: Bound | None) -> Outcome | None:
    if found is None:
        return None
    return Outcome(node=found.node, rank=found.rank, score=found.score, source=found.said_by)


def group_of(gang: GangNow | None) -> Group | None:
    return None if gang is None else Group(**gang._asdict(), text=in_words(gang))
