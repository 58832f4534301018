"""Entries of the decision log as text: the winner, its lead, and the terms of the others."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec.structs
import numpy as np

from joulie_answers.schema.responses import Candidate, DecisionBrief, Loss, TermSet
from joulie_bus.core.times import MS
from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    AnyEvent,
    FilterDecided,
    PodAsk,
    PreemptDecided,
    PrioritizeDecided,
    Terms,
    codec,
    named_values,
)
from joulie_extender.catalogue.rules import sentence_of
from joulie_extender.catalogue.terms import ENERGY, points_of, watts_of
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import candidate_names, names_of, scores_again
from joulie_extender.decide.entry_verbs import VERBS, EntryVerb
from joulie_extender.decide.explained import (
    PASSED,
    WITHOUT_VIEW,
    Explained,
    behind_ms,
    explained,
    has_view,
    refusals,
    view_age_ms,
    view_text,
)
from joulie_extender.decide.scoring import terms_digest, terms_of
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.row_names import RowNames, RowSpan, names_node

KINDS: dict[EntryVerb, str] = {
    **{verb: kind for kind, verb in VERBS.items()},
    "unreadable": "unreadable",  # the name in the log itself
}
_USUAL = Weights()
EQUAL_BELOW = 0.05  # points: smaller differences vanish at one decimal


class DescribedEntry(NamedTuple):
    """An entry with its decoded event and explanation; the event is None if it is unreadable."""

    brief: DecisionBrief
    event: AnyEvent | None
    explained: Explained
    names: RowNames

    def nodes(self) -> frozenset[str]:
        """The winner, the refused nodes, or the node that was bound.

        Computed when asked for: a list of decisions shows none of the refused nodes.
        """
        nodes = [self.explained.node] if self.explained.node else []
        if isinstance(self.event, FilterDecided):
            found = refusals(self.event, self.names)
            nodes += [node for refusal in found for node in refusal.nodes]
        return frozenset(nodes)


def considers(event: AnyEvent | None, node: str, spans: Sequence[RowSpan]) -> bool:
    """Whether a node, which had the rows `spans`, is a candidate or the one that was chosen."""
    if isinstance(event, FilterDecided | PrioritizeDecided | PreemptDecided):
        return names_node(event.candidates, event.basis.view, node, spans)
    return explained(event).node == node


class EntryRow(NamedTuple):
    """The columns of a row of the log that a description needs."""

    entry: int
    event_id: str
    pod: str
    pod_uid: str
    decided_at: int
    message: bytes


def describe(row: EntryRow, names: RowNames, weights: Mapping[str, Weights]) -> DescribedEntry:
    event, why = _event(row)
    found = explained(event)
    if why:
        found = found._replace(text=why)
    brief = _brief(row, found)
    if isinstance(event, PrioritizeDecided):
        used = weights.get(event.basis.settings, _USUAL)
        brief = replaced(brief, **_runner_up(event.top, used))
    if not has_view(found.basis):
        brief = replaced(brief, text=f"{brief.text}, {WITHOUT_VIEW}")
    return DescribedEntry(brief, event, found, names)


def _event(row: EntryRow) -> tuple[AnyEvent | None, str]:
    """The event of the entry, or why there is none."""
    try:
        envelope = codec.open_envelope(row.message, f"entry {row.entry}")
        return codec.read(envelope, f"entry {row.entry}"), ""
    except Undecodable as error:
        return None, str(error)


def _brief(row: EntryRow, found: Explained) -> DecisionBrief:
    namespace, _, name = row.pod.partition("/")
    return DecisionBrief(
        entry=row.entry,
        id=row.event_id,
        verb=found.verb,
        pod_uid=row.pod_uid,
        namespace=namespace,
        name=name,
        workload=found.pod.workload if found.pod else None,
        at_ms=row.decided_at // MS,
        view=found.basis.view if found.basis else 0,
        view_age_ms=view_age_ms(found.basis),
        behind_ms=behind_ms(found.basis),
        view_text=view_text(found.basis) if found.basis else "",
        candidates=found.asked,
        refused=found.refused,
        reason=found.reason,
        refused_by=dict(found.refused_by),
        winner=found.node if found.top or found.is_bound else "",
        score=found.top[0].score if found.top else None,
        runner_up="",
        runner_up_score=None,
        loss=None,
        text=found.text,
    )


def _runner_up(top: Sequence[Terms], weights: Weights) -> dict[str, object]:
    """The second best node and what it lost by; {} if there is none."""
    if len(top) < 2:
        return {}
    winner, second = top[:2]
    loss = loss_of(winner, second, weights)
    text = f"{winner.node} scores {winner.score:.1f}; {second.node} is {_behind(loss)}"
    return {
        "runner_up": second.node,
        "runner_up_score": second.score,
        "loss": loss,
        "text": text,
    }


def _is_level(loss: Loss) -> bool:
    return loss.behind < EQUAL_BELOW


def _behind(loss: Loss) -> str:
    if _is_level(loss):
        return "level with it"
    return f"{loss.behind:.1f} behind, most of it {loss.term}"


def replaced(brief: DecisionBrief, **changes: object) -> DecisionBrief:
    return msgspec.structs.replace(brief, **changes)


# --- terms ------------------------------------------------------------------------------------


def loss_of(winner: Terms, loser: Terms, weights: Weights) -> Loss:
    """Has no term if the scores are equal: then the order of the request decided."""
    best, worse = points_of(winner, weights), points_of(loser, weights)
    costs = {term: best.get(term, 0.0) - worse.get(term, 0.0) for term in sorted({*best, *worse})}
    behind = winner.score - loser.score
    term = max(sorted(costs), key=lambda name: costs[name])
    if behind <= 0 or costs[term] <= 0:
        return Loss(term="", points=0.0, behind=behind)
    named = _most_watts(winner, loser) if term == ENERGY.start_name else term
    return Loss(term=named, points=costs[term], behind=behind)


def _most_watts(winner: Terms, loser: Terms) -> str:
    """The term by which the loser costs most watts more than the winner."""
    best, worse = watts_of(winner), watts_of(loser)
    return max(best, key=lambda name: worse[name] - best[name])


def term_set(terms: Terms, weights: Weights) -> TermSet:
    values = named_values(terms)
    first = {name: values[name] for name in TermSet.__struct_fields__ if name in values}
    points = points_of(terms, weights)
    return TermSet(**first, source=terms.source, values=values, points=points)


# --- candidates -------------------------------------------------------------------------------


def candidates_of(
    event: AnyEvent | None, names: RowNames, weights: Weights, computed: Sequence[Terms] = ()
) -> list[Candidate]:
    """Best first; of a filter the refused ones first. `computed` are recomputed terms."""
    match event:
        case FilterDecided() | PreemptDecided():
            pairs = zip(candidate_names(event, names), event.verdicts, strict=True)
            return sorted(
                (_with_verdict(node, sentence_of(code)) for node, code in pairs),
                key=lambda candidate: (candidate.verdict == PASSED, candidate.node),
            )
        case PrioritizeDecided():
            return _scored(event, names, weights, computed)
        case _:
            return []


def _with_verdict(node: str, verdict: str) -> Candidate:
    return Candidate(node=node, verdict=verdict, answer=None, terms=None, loss=None)


def _scored(
    event: PrioritizeDecided, names: RowNames, weights: Weights, computed: Sequence[Terms]
) -> list[Candidate]:
    known = {terms.node: terms for terms in (*computed, *event.top)}
    answers: list[int] = np.frombuffer(event.scores, "<i2").tolist()
    named = dict(zip(candidate_names(event, names), answers, strict=True))
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
    values = term_set(terms, weights) if terms else None
    return Candidate(node=node, verdict="", answer=answer, terms=values, loss=loss)


def recomputed_terms(
    event: PrioritizeDecided, twin_columns: TwinColumns, weights: Weights
) -> tuple[list[Terms], bool]:
    """The recomputed terms of every candidate, and whether they equal the recorded digest."""
    names = names_of(event.candidates, twin_columns)
    scores = scores_again(event, twin_columns, weights)
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
    if node:
        lines.append(_place_sentence(node, scored.brief if scored else None))
    elif pod:
        lines.append("It is not bound to a node.")
    if not newest_first:
        lines.append("No decision about it is in the log.")
    return lines


def _place_sentence(node: str, scored: DecisionBrief | None) -> str:
    if scored is None or scored.winner in ("", node):
        return f"It runs on {node}."
    if node == scored.runner_up and scored.loss and _is_level(scored.loss):
        return f"It runs on {node}: kube-scheduler chooses among level nodes."
    return f"kube-scheduler put it on {node}: it combines this score with other scores."


def _class_sentence(pod: PodAsk) -> str:
    rule = f"by the rule {pod.rule}"
    exempt = f" It is exempt from refusals: {pod.exempt}." if pod.exempt else ""
    gpus = f", {pod.gpu_milli / 1000:g} GPU(s)" if pod.gpu_milli else ""
    return f"Class {pod.workload}, {rule}; requests {pod.cpu_milli / 1000:g} cores{gpus}.{exempt}"


def _filter_sentence(entry: DescribedEntry) -> str:
    brief, found = entry.brief, entry.explained
    reason = f": {brief.reason}" if brief.refused else ""
    seen = "" if has_view(found.basis) else f", {WITHOUT_VIEW}"
    return f"{capital(found.text)} the filter (entry {brief.entry}{seen}){reason}."


def _score_sentence(entry: DescribedEntry) -> str:
    brief = entry.brief
    seen = f", with the view at position {brief.view}" if has_view(entry.explained.basis) else ""
    return f"{brief.text} (entry {brief.entry}{seen})."


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _newest(described: Sequence[DescribedEntry], verb: EntryVerb) -> DescribedEntry | None:
    return next((found for found in described if found.brief.verb == verb), None)
