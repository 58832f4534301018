"""Entries of the decision log as text: the winner, its lead, and the terms of the others. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec.structs
import numpy as np

from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    AnyEvent,
    BindDecided,
    FilterDecided,
    OutcomeSeen,
    PodAsk,
    PreemptDecided,
    PrioritizeDecided,
    SettingsDeclared,
    Terms,
    codec,
)
from joulie_console.schema.requests import Verb
from joulie_console.schema.responses import Candidate, DecisionBrief, Loss, TermSet
from joulie_console.views.cluster_view import MS
from joulie_extender.decide.decide import candidate_names, names_of, rows_of
from joulie_extender.decide.filter import Verdict
from joulie_extender.decide.scoring import Weights, score, terms_digest, terms_of
from joulie_extender.gpu.fit import HIGHEST, GpuVerdict
from joulie_projections.twin.columns import TwinColumns

VERBS: dict[str, Verb] = {
    FilterDecided.TYPE: "filter",
    PrioritizeDecided.TYPE: "prioritize",
    PreemptDecided.TYPE: "preempt",
    BindDecided.TYPE: "bind",
    OutcomeSeen.TYPE: "outcome",
    SettingsDeclared.TYPE: "settings",
}
KINDS: dict[Verb, str] = {
    **{verb: kind for kind, verb in VERBS.items()},
    "unreadable": "unreadable",  # the name in the log itself
}
_VERDICTS: dict[int, str] = {
    Verdict.PASSED: "passed",
    Verdict.ECO: "the node is eco",
    Verdict.DRAINING: "the node is draining",
    Verdict.ECO_LABEL: "its label is eco, and no newer state is known",
    Verdict.STALE: "its state is too old, and FILTER_STALE is closed",
    GpuVerdict.NO_CARDS: "it has not the free, healthy cards of one model",
    GpuVerdict.NOT_LINKED: "its free, healthy cards are not linked",
    GpuVerdict.UNREADABLE: "an annotation of the pod about GPUs cannot be read",
}
EQUAL_BELOW = 0.05  # points: smaller differences vanish at one decimal
Names = Mapping[int, str]


class DescribedEntry(NamedTuple):
    """An entry with its decoded event; None if it cannot be decoded."""

    brief: DecisionBrief
    event: AnyEvent | None
    nodes: frozenset[str]  # the winner, the refused nodes, or the node that was bound


class EntryRow(NamedTuple):
    """The columns of a row of the log that a description needs."""

    entry: int
    event_id: str
    pod: str
    pod_uid: str
    decided_at: int
    message: bytes


def describe(row: EntryRow, names: Names, weights: Mapping[str, Weights]) -> DescribedEntry:
    try:
        envelope = codec.open_envelope(row.message, f"entry {row.entry}")
        event = codec.read(envelope, f"entry {row.entry}")
    except Undecodable as error:
        return DescribedEntry(_brief(row, "unreadable", str(error)), None, frozenset())
    match event:
        case FilterDecided():
            return _filter(row, event, names)
        case PrioritizeDecided():
            return _prioritize(row, event, weights.get(event.basis.settings, Weights()))
        case PreemptDecided():
            return _preempt(row, event)
        case BindDecided():
            return _bind(row, event)
        case OutcomeSeen():
            return _outcome(row, event)
        case SettingsDeclared():
            text = f"A replica scores with settings {event.settings} ({event.code})"
            return DescribedEntry(_brief(row, "settings", text), event, frozenset())
        case _:
            text = f"{event.TYPE} is not an entry of the decision log"
            return DescribedEntry(_brief(row, "unreadable", text), None, frozenset())


def _brief(row: EntryRow, verb: Verb, text: str) -> DecisionBrief:
    namespace, _, name = row.pod.partition("/")
    return DecisionBrief(
        entry=row.entry,
        id=row.event_id,
        verb=verb,
        pod_uid=row.pod_uid,
        namespace=namespace,
        name=name,
        workload=None,
        at_ms=row.decided_at // MS,
        view=0,
        view_age_ms=0,
        candidates=0,
        refused=0,
        reason="",
        refused_by={},
        winner="",
        score=None,
        runner_up="",
        runner_up_score=None,
        loss=None,
        text=text,
    )


def _scheduling_brief(
    row: EntryRow, verb: Verb, event: FilterDecided | PrioritizeDecided | PreemptDecided, text: str
) -> DecisionBrief:
    return replaced(
        _brief(row, verb, text),
        workload=event.pod.workload,
        view=event.basis.view,
        view_age_ms=event.basis.view_age_ms,
        candidates=event.candidates.count,
    )


def replaced(brief: DecisionBrief, **changes: object) -> DecisionBrief:
    return msgspec.structs.replace(brief, **changes)


def _filter(row: EntryRow, event: FilterDecided, names: Names) -> DescribedEntry:
    codes = Counter(event.verdicts)
    refused = len(event.verdicts) - codes[Verdict.PASSED]
    total = len(event.verdicts)
    text = f"{refused} of {total} nodes refused" if refused else _all_pass(total)
    named = zip(candidate_names(event.candidates, names), event.verdicts, strict=True)
    brief = replaced(
        _scheduling_brief(row, "filter", event, text),
        refused=refused,
        reason=event.reason,
        refused_by={verdict_text(code): n for code, n in sorted(codes.items()) if code},
    )
    return DescribedEntry(brief, event, frozenset(name for name, verdict in named if verdict))


def _all_pass(total: int) -> str:
    return f"All {total} nodes pass" if total > 1 else f"{total} of {total} nodes pass"


def _prioritize(row: EntryRow, event: PrioritizeDecided, weights: Weights) -> DescribedEntry:
    if not event.top:
        return DescribedEntry(
            _scheduling_brief(row, "prioritize", event, "No node to score"), event, frozenset()
        )
    winner, runner_up = event.top[0], event.top[1] if len(event.top) > 1 else None
    loss = loss_of(winner, runner_up, weights) if runner_up else None
    text = f"{winner.node} scores {winner.score:.1f}"
    if runner_up and loss:
        text += f"; {runner_up.node} is {_behind(loss)}"
    brief = replaced(
        _scheduling_brief(row, "prioritize", event, text),
        winner=winner.node,
        score=winner.score,
        runner_up=runner_up.node if runner_up else "",
        runner_up_score=runner_up.score if runner_up else None,
        loss=loss,
    )
    return DescribedEntry(brief, event, frozenset({winner.node}))


def _behind(loss: Loss) -> str:
    if loss.behind < EQUAL_BELOW:
        return "level with it"
    return f"{loss.behind:.1f} behind, most of it {loss.term}"


def _preempt(row: EntryRow, event: PreemptDecided) -> DescribedEntry:
    dropped = sum(verdict > 0 for verdict in event.verdicts)
    text = f"{len(event.verdicts) - dropped} of {len(event.verdicts)} nodes are worth clearing"
    brief = _scheduling_brief(row, "preempt", event, text)
    return DescribedEntry(replaced(brief, refused=dropped), event, frozenset())


def _bind(row: EntryRow, event: BindDecided) -> DescribedEntry:
    cards = f" with {len(event.cards)} card(s)" if event.cards else ""
    text = f"Bound to {event.node}{cards}"
    if event.outcome != "bound":
        text = f"Not bound to {event.node}: {event.error or event.outcome}"
    brief = replaced(
        _brief(row, "bind", text),
        view=event.basis.view,
        view_age_ms=event.basis.view_age_ms,
        winner=event.node if event.outcome == "bound" else "",
    )
    return DescribedEntry(brief, event, frozenset({event.node}))


def _outcome(row: EntryRow, event: OutcomeSeen) -> DescribedEntry:
    text = f"It runs on {event.node}"
    if event.rank is not None:
        text += f", number {event.rank} of the ranking"
    if event.regret:
        text += f", {event.regret} points behind the best"
    brief = replaced(_brief(row, "outcome", text), winner=event.node)
    return DescribedEntry(brief, event, frozenset({event.node}))


# --- terms ------------------------------------------------------------------------------------


def points_of(terms: Terms, weights: Weights) -> dict[str, float]:
    """What each term adds to the score; the sum is the score before it is clamped."""
    if terms.source in ("neutral", "undiscovered"):
        return {"neutral": terms.score}
    if terms.source == "energy":
        return _energy_points(terms)
    if terms.source == "cards":  # a score out of ten, of the packing alone
        return {"packing": terms.packing, **_if_any(wishes=terms.wishes / HIGHEST)}
    return {
        "headroom": weights.headroom * terms.headroom,
        "cooling": weights.cooling * (100 - terms.cooling),
        "trend": terms.trend,
        "bonus": terms.bonus,
        "pressure": -terms.pressure,
        "draining": -terms.draining,
        **_if_any(packing=terms.packing, wishes=terms.wishes, cards_kept=-terms.cards_kept),
    }


def _if_any(**terms: float) -> dict[str, float]:
    """Optional terms, without those that do not apply."""
    return {name: points for name, points in terms.items() if points}


def _energy_points(terms: Terms) -> dict[str, float]:
    """All watts are one term: the score is not a sum of them."""
    return {
        "watts": terms.score + terms.draining - terms.wishes,
        "draining": -terms.draining,
        **_if_any(wishes=terms.wishes),
    }


def _watts_of(terms: Terms) -> dict[str, float]:
    return {
        "marginal": terms.marginal_w,
        "activation": terms.energy.activation_w,
        "fragmentation": terms.energy.fragmentation_w,
        "reserve": terms.energy.reserve_w,
    }


def loss_of(winner: Terms, loser: Terms, weights: Weights) -> Loss:
    """Has no term if the scores are equal: then the order of the request decided."""
    best, worse = points_of(winner, weights), points_of(loser, weights)
    costs = {term: best.get(term, 0.0) - worse.get(term, 0.0) for term in sorted({*best, *worse})}
    behind = winner.score - loser.score
    term = max(sorted(costs), key=lambda name: costs[name])
    if behind <= 0 or costs[term] <= 0:
        return Loss(term="", points=0.0, behind=behind)
    named = _most_watts(winner, loser) if term == "watts" else term
    return Loss(term=named, points=costs[term], behind=behind)


def _most_watts(winner: Terms, loser: Terms) -> str:
    """The term by which the loser costs most watts more than the winner."""
    best, worse = _watts_of(winner), _watts_of(loser)
    return max(best, key=lambda name: worse[name] - best[name])


def term_set(terms: Terms, weights: Weights) -> TermSet:
    return TermSet(
        score=terms.score,
        headroom=terms.headroom,
        cooling=terms.cooling,
        trend=terms.trend,
        bonus=terms.bonus,
        pressure=terms.pressure,
        draining=terms.draining,
        marginal_w=terms.marginal_w,
        source=terms.source,
        points=points_of(terms, weights),
    )


# --- candidates -------------------------------------------------------------------------------


def verdict_text(code: int) -> str:
    return _VERDICTS.get(code, f"refused (code {code})")


def candidates_of(
    event: AnyEvent | None, names: Names, weights: Weights, computed: Sequence[Terms] = ()
) -> list[Candidate]:
    """Best first; of a filter the refused ones first. `computed` are recomputed terms."""
    match event:
        case FilterDecided() | PreemptDecided():
            pairs = zip(candidate_names(event.candidates, names), event.verdicts, strict=True)
            return sorted(
                (_with_verdict(node, verdict_text(code)) for node, code in pairs),
                key=lambda candidate: (candidate.verdict == "passed", candidate.node),
            )
        case PrioritizeDecided():
            return _scored(event, names, weights, computed)
        case _:
            return []


def _with_verdict(node: str, verdict: str) -> Candidate:
    return Candidate(node=node, verdict=verdict, answer=None, terms=None, loss=None)


def _scored(
    event: PrioritizeDecided, names: Names, weights: Weights, computed: Sequence[Terms]
) -> list[Candidate]:
    known = {terms.node: terms for terms in (*computed, *event.top)}
    answers: list[int] = np.frombuffer(event.scores, "<i2").tolist()
    named = dict(zip(candidate_names(event.candidates, names), answers, strict=True))
    ranks = {terms.node: rank for rank, terms in enumerate(event.top)}
    order = sorted(
        named,
        key=lambda node: (
            ranks.get(node, len(ranks)),
            -known[node].score if node in known else -named[node],
        ),
    )
    winner = event.top[0] if event.top else None
    return [_candidate(node, named[node], known.get(node), winner, weights) for node in order]


def _candidate(
    node: str, answer: int, terms: Terms | None, winner: Terms | None, weights: Weights
) -> Candidate:
    loss = None
    if terms and winner and terms.node != winner.node:
        loss = loss_of(winner, terms, weights)
    shown = term_set(terms, weights) if terms else None
    return Candidate(node=node, verdict="", answer=answer, terms=shown, loss=loss)


def recomputed_terms(
    event: PrioritizeDecided, twin_columns: TwinColumns, weights: Weights
) -> tuple[list[Terms], bool]:
    """The recomputed terms of every candidate, and whether they equal the recorded digest."""
    names, basis = names_of(event.candidates, twin_columns), event.basis
    rows = rows_of(event.candidates)
    scores = score(event.pod, twin_columns, rows, basis.now, basis.view_age_ms, weights)
    terms = [terms_of(scores, names, at) for at in range(len(names))]
    return terms, terms_digest(scores) == event.terms_digest


# --- a pod, explained -------------------------------------------------------------------------


def explain(pod: PodAsk | None, node: str, newest_first: Sequence[DescribedEntry]) -> list[str]:
    """Why the pod is on its node: sentences, oldest cause first."""
    lines = [_class_sentence(pod)] if pod else []
    filtered = _newest(newest_first, "filter")
    scored = _newest(newest_first, "prioritize")
    if filtered is not None:
        lines.append(_filter_sentence(filtered))
    if scored is not None:
        lines.append(_score_sentence(scored))
    if node and scored is not None and scored.winner and scored.winner != node:
        lines.append(f"kube-scheduler put it on {node}: it combines this score with other scores.")
    elif node:
        lines.append(f"It runs on {node}.")
    elif pod:
        lines.append("It is not bound to a node.")
    if not newest_first:
        lines.append("No decision about it is in the log.")
    return lines


def _class_sentence(pod: PodAsk) -> str:
    rule = f"by the rule {pod.rule}"
    exempt = f" It is exempt from refusals: {pod.exempt}." if pod.exempt else ""
    gpus = f", {pod.gpu_milli / 1000:g} GPU(s)" if pod.gpu_milli else ""
    return f"Class {pod.workload}, {rule}; requests {pod.cpu_milli / 1000:g} cores{gpus}.{exempt}"


def _filter_sentence(brief: DecisionBrief) -> str:
    if not brief.refused:
        return f"{brief.text} the filter (entry {brief.entry})."
    return f"{brief.text} (entry {brief.entry}): {brief.reason}."


def _score_sentence(brief: DecisionBrief) -> str:
    return f"{brief.text} (entry {brief.entry}, with the view at position {brief.view})."


def _newest(described: Sequence[DescribedEntry], verb: Verb) -> DecisionBrief | None:
    return next((found.brief for found in described if found.brief.verb == verb), None)
