"""Entries of the decision log in words: who won, by how much, and what it cost the others. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec.structs
import numpy as np

from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    AnyEvent,
    BindDecided,
    Candidates,
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
from joulie_extender.decide.decide import names_of, rows_of
from joulie_extender.decide.filter import Verdict
from joulie_extender.decide.scoring import Weights, score, terms_digest, terms_of
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
    "unreadable": "unreadable",  # as the log itself calls it
}
_VERDICTS = {
    Verdict.PASSED: "passed",
    Verdict.ECO: "the node is eco",
    Verdict.DRAINING: "the node is draining",
    Verdict.ECO_LABEL: "its label says eco, and nothing fresher is known",
}
LEVEL = 0.05  # points that one decimal does not show
Names = Mapping[int, str]


class Told(NamedTuple):
    """An entry with what it says, if it can be read."""

    brief: DecisionBrief
    event: AnyEvent | None
    nodes: frozenset[str]  # that it is about: won, refused or bound


class Line(NamedTuple):
    """What the log's row says."""

    entry: int
    event_id: str
    pod: str
    pod_uid: str
    decided_at: int
    message: bytes


def tell(line: Line, names: Names, weights: Mapping[str, Weights]) -> Told:
    try:
        envelope = codec.open_envelope(line.message, f"entry {line.entry}")
        event = codec.read(envelope, f"entry {line.entry}")
    except Undecodable as error:
        return Told(_blank(line, "unreadable", str(error)), None, frozenset())
    match event:
        case FilterDecided():
            return _filter(line, event, names)
        case PrioritizeDecided():
            return _prioritize(line, event, weights.get(event.basis.settings, Weights()))
        case PreemptDecided():
            return _preempt(line, event)
        case BindDecided():
            return _bind(line, event)
        case OutcomeSeen():
            return _outcome(line, event)
        case SettingsDeclared():
            text = f"A replica scores with settings {event.settings} ({event.code})"
            return Told(_blank(line, "settings", text), event, frozenset())
        case _:
            text = f"{event.TYPE} is no entry of the decision log"
            return Told(_blank(line, "unreadable", text), None, frozenset())


def _blank(line: Line, verb: Verb, text: str) -> DecisionBrief:
    namespace, _, name = line.pod.partition("/")
    return DecisionBrief(
        entry=line.entry,
        id=line.event_id,
        verb=verb,
        pod_uid=line.pod_uid,
        namespace=namespace,
        name=name,
        workload=None,
        at_ms=line.decided_at // MS,
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


def _answered(
    line: Line, verb: Verb, event: FilterDecided | PrioritizeDecided | PreemptDecided, text: str
) -> DecisionBrief:
    return replaced(
        _blank(line, verb, text),
        workload=event.pod.workload,
        view=event.basis.view,
        view_age_ms=event.basis.view_age_ms,
        candidates=count_of(event.candidates),
    )


def replaced(brief: DecisionBrief, **changes: object) -> DecisionBrief:
    return msgspec.structs.replace(brief, **changes)


def _filter(line: Line, event: FilterDecided, names: Names) -> Told:
    codes = Counter(event.verdicts)
    refused = len(event.verdicts) - codes[Verdict.PASSED]
    asked = len(event.verdicts)
    text = f"{refused} of {asked} nodes refused" if refused else _all_pass(asked)
    named = zip(candidate_names(event.candidates, names), event.verdicts, strict=True)
    brief = replaced(
        _answered(line, "filter", event, text),
        refused=refused,
        reason=event.reason,
        refused_by={verdict_text(code): n for code, n in sorted(codes.items()) if code},
    )
    return Told(brief, event, frozenset(name for name, verdict in named if verdict))


def _all_pass(asked: int) -> str:
    return f"All {asked} nodes pass" if asked > 1 else f"{asked} of {asked} nodes pass"


def _prioritize(line: Line, event: PrioritizeDecided, weights: Weights) -> Told:
    if not event.top:
        return Told(_answered(line, "prioritize", event, "No node to score"), event, frozenset())
    winner, runner_up = event.top[0], event.top[1] if len(event.top) > 1 else None
    loss = loss_of(winner, runner_up, weights) if runner_up else None
    text = f"{winner.node} scores {winner.score:.1f}"
    if runner_up and loss:
        text += f"; {runner_up.node} is {_behind(loss)}"
    brief = replaced(
        _answered(line, "prioritize", event, text),
        winner=winner.node,
        score=winner.score,
        runner_up=runner_up.node if runner_up else "",
        runner_up_score=runner_up.score if runner_up else None,
        loss=loss,
    )
    return Told(brief, event, frozenset({winner.node}))


def _behind(loss: Loss) -> str:
    if loss.behind < LEVEL:
        return "level with it"
    return f"{loss.behind:.1f} behind, most of it {loss.term}"


def _preempt(line: Line, event: PreemptDecided) -> Told:
    dropped = sum(verdict > 0 for verdict in event.verdicts)
    text = f"{len(event.verdicts) - dropped} of {len(event.verdicts)} nodes are worth clearing"
    brief = _answered(line, "preempt", event, text)
    return Told(replaced(brief, refused=dropped), event, frozenset())


def _bind(line: Line, event: BindDecided) -> Told:
    cards = f" with {len(event.cards)} card(s)" if event.cards else ""
    text = f"Bound to {event.node}{cards}"
    if event.outcome != "bound":
        text = f"Not bound to {event.node}: {event.error or event.outcome}"
    brief = replaced(
        _blank(line, "bind", text),
        view=event.basis.view,
        view_age_ms=event.basis.view_age_ms,
        winner=event.node if event.outcome == "bound" else "",
    )
    return Told(brief, event, frozenset({event.node}))


def _outcome(line: Line, event: OutcomeSeen) -> Told:
    text = f"It runs on {event.node}"
    if event.rank is not None:
        text += f", number {event.rank} of our answer"
    if event.regret:
        text += f", {event.regret} points behind the best"
    brief = replaced(_blank(line, "outcome", text), winner=event.node)
    return Told(brief, event, frozenset({event.node}))


# --- terms ------------------------------------------------------------------------------------


def points_of(terms: Terms, weights: Weights) -> dict[str, float]:
    """What each term gives or takes in the end; they add up to the score before it is clamped."""
    if terms.source in ("neutral", "undiscovered"):
        return {"neutral": terms.score}
    return {
        "headroom": weights.headroom * terms.headroom,
        "cooling": weights.cooling * (100 - terms.cooling),
        "trend": terms.trend,
        "bonus": terms.bonus,
        "pressure": -terms.pressure,
        "draining": -terms.draining,
    }


def loss_of(winner: Terms, loser: Terms, weights: Weights) -> Loss:
    """Empty where they are level: then the order of the request decided."""
    best, worse = points_of(winner, weights), points_of(loser, weights)
    costs = {term: best.get(term, 0.0) - worse.get(term, 0.0) for term in sorted({*best, *worse})}
    behind = winner.score - loser.score
    term = max(sorted(costs), key=lambda name: costs[name])
    if behind <= 0 or costs[term] <= 0:
        return Loss(term="", points=0.0, behind=behind)
    return Loss(term=term, points=costs[term], behind=behind)


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


def count_of(candidates: Candidates) -> int:
    return len(candidates.ordinals) // 4


def candidate_names(candidates: Candidates, names: Names) -> list[str]:
    """A node that is gone for good keeps only its number."""
    strangers = iter(candidates.strangers)
    ordinals: list[int] = np.frombuffer(candidates.ordinals, "<i4").tolist()
    return [
        next(strangers, "?") if ordinal < 0 else names.get(ordinal, f"#{ordinal}")
        for ordinal in ordinals
    ]


def verdict_text(code: int) -> str:
    try:
        return _VERDICTS[Verdict(code)]
    except (ValueError, KeyError):
        return f"refused (code {code})"


def candidates_of(
    event: AnyEvent | None, names: Names, weights: Weights, computed: Sequence[Terms] = ()
) -> list[Candidate]:
    """Best first; refused ones before the others. `computed` are the terms of all of them."""
    match event:
        case FilterDecided() | PreemptDecided():
            pairs = zip(candidate_names(event.candidates, names), event.verdicts, strict=True)
            return sorted(
                (_judged(node, verdict_text(code)) for node, code in pairs),
                key=lambda candidate: (candidate.verdict == "passed", candidate.node),
            )
        case PrioritizeDecided():
            return _scored(event, names, weights, computed)
        case _:
            return []


def _judged(node: str, verdict: str) -> Candidate:
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
    told = term_set(terms, weights) if terms else None
    return Candidate(node=node, verdict="", answer=answer, terms=told, loss=loss)


def computed_again(
    event: PrioritizeDecided, twin_columns: TwinColumns, weights: Weights
) -> tuple[list[Terms], bool]:
    """The terms of every candidate, and whether they are those of back then, to the last bit."""
    names, basis = names_of(event.candidates, twin_columns), event.basis
    rows = rows_of(event.candidates)
    scores = score(event.pod, twin_columns, rows, basis.now, basis.view_age_ms, weights)
    terms = [terms_of(scores, names, at) for at in range(len(names))]
    return terms, terms_digest(scores) == event.terms_digest


# --- a pod, explained -------------------------------------------------------------------------


def explain(pod: PodAsk | None, node: str, newest_first: Sequence[Told]) -> list[str]:
    """Why it is where it is, in sentences, oldest cause first."""
    lines = [_who(pod)] if pod else []
    filtered = _newest(newest_first, "filter")
    scored = _newest(newest_first, "prioritize")
    if filtered is not None:
        lines.append(_filtered(filtered))
    if scored is not None:
        lines.append(_ranked(scored))
    if node and scored is not None and scored.winner and scored.winner != node:
        lines.append(
            f"kube-scheduler put it on {node}: our score is one voice among several there."
        )
    elif node:
        lines.append(f"It runs on {node}.")
    elif pod:
        lines.append("It is not bound to a node.")
    if not newest_first:
        lines.append("No decision about it is in the log.")
    return lines


def _who(pod: PodAsk) -> str:
    rule = f"by the rule {pod.rule}"
    exempt = f" Energy may never refuse it: {pod.exempt}." if pod.exempt else ""
    gpus = f", {pod.gpu_milli / 1000:g} GPU(s)" if pod.gpu_milli else ""
    return f"Class {pod.workload}, {rule}; asks for {pod.cpu_milli / 1000:g} cores{gpus}.{exempt}"


def _filtered(brief: DecisionBrief) -> str:
    if not brief.refused:
        return f"{brief.text} the filter (entry {brief.entry})."
    return f"{brief.text} (entry {brief.entry}): {brief.reason}."


def _ranked(brief: DecisionBrief) -> str:
    return f"{brief.text} (entry {brief.entry}, on the view of position {brief.view})."


def _newest(told: Sequence[Told], verb: Verb) -> DecisionBrief | None:
    return next((found.brief for found in told if found.brief.verb == verb), None)
