"""Entries of the decision log as text: the winner, its lead, and the terms of the others."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec.structs
import numpy as np

from joulie_answers.schema.responses import Candidate, DecisionBrief, Loss, Refused, TermSet
from joulie_answers.views.sentences import decision_sentence
from joulie_bus.core.times import MS
from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    AnyEvent,
    FilterDecided,
    PreemptDecided,
    PrioritizeDecided,
    Terms,
    codec,
)
from joulie_extender.catalogue.rules import sentence_of
from joulie_extender.catalogue.terms import (
    ENERGY,
    NEUTRAL,
    applying_values,
    formula_of,
    head_of,
    is_known,
    is_without_data,
    points_of,
    watts_of,
)
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
from joulie_extender.terms.freshness import WITHOUT_DATA
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.row_names import RowNames, RowSpan, names_node

KINDS: dict[EntryVerb, str] = {
    **{verb: kind for kind, verb in VERBS.items()},
    "unreadable": "unreadable",  # the name in the log itself
}
# Replicas sign each second: a list or a stream has promises only if it is asked for them.
UNLISTED: tuple[EntryVerb, ...] = ("promise", "promise-key")
LISTED = tuple(kind for verb, kind in KINDS.items() if verb not in UNLISTED)
EQUAL_BELOW = 0.05  # points: smaller differences vanish at one decimal
LEVEL = "level"


class DescribedEntry(NamedTuple):
    """An entry with its decoded event and explanation; the event is None if it is unreadable."""

    brief: DecisionBrief
    event: AnyEvent | None
    explained: Explained
    names: RowNames
    fault: Exception | None = None  # of the description; the brief then has no more than the row

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
    """`weights` by the id of their settings. A description that fails hides its own line, never a
    list: whatever fails is in `fault`."""
    event, why = _event(row)
    try:
        found = explained(event)
        if why:
            found = found._replace(text=why)
        brief = _described(row, event, found, weights)
        brief = msgspec.structs.replace(brief, sentence=decision_sentence(brief))
        return DescribedEntry(brief, event, found, names)
    except Exception as fault:  # anything: the other entries of the list must be shown
        found = Explained("unreadable", failed_text(fault))
        brief = _brief(row, found)
        brief = msgspec.structs.replace(brief, sentence=decision_sentence(brief))
        return DescribedEntry(brief, event, found, names, fault)


def failed_text(fault: Exception) -> str:
    return (
        f"this could not be described ({type(fault).__name__}: {fault}): a fault of Joulie, please "
        "report it; the entries are in the log, and `joulie verify` checks them"
    )


def _described(
    row: EntryRow, event: AnyEvent | None, found: Explained, weights: Mapping[str, Weights]
) -> DecisionBrief:
    brief = _brief(row, found)
    if isinstance(event, PrioritizeDecided):
        brief = replaced(brief, **_runner_up(event.top, weights.get(event.basis.settings)))
    if not has_view(found.basis):
        brief = replaced(brief, text=f"{brief.text}, {WITHOUT_VIEW}")
    return brief


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


def _runner_up(top: Sequence[Terms], weights: Weights | None) -> dict[str, object]:
    """The second best node and what it lost by; {} if there is none."""
    if len(top) < 2:
        return {}
    winner, second = top[:2]
    return {
        "runner_up": second.node,
        "runner_up_score": second.score,
        "loss": loss_of(winner, second, weights),
        "text": best_text(top, weights),
    }


def best_text(top: Sequence[Terms], weights: Weights | None) -> str:
    """The best node, and what the second one lost by."""
    if not top:
        return ""
    best = f"{top[0].node} scores {top[0].score:.1f}"
    if len(top) < 2:
        return best
    return f"{best}; {top[1].node} is {loss_of(top[0], top[1], weights).text}"


def replaced(brief: DecisionBrief, **changes: object) -> DecisionBrief:
    return msgspec.structs.replace(brief, **changes)


# --- terms ------------------------------------------------------------------------------------


class _Cost(NamedTuple):
    """The term that cost a candidate most points, and how many."""

    term: str
    points: float


_NOT_COMPARED = _Cost("", 0.0)


def loss_of(winner: Terms, loser: Terms, weights: Weights | None) -> Loss:
    """Has no term if the scores are level, where the order of the request decided, if the settings
    of the decision are unknown, and if no formula gave both scores."""
    behind = winner.score - loser.score
    if behind < EQUAL_BELOW:
        return Loss(term="", points=0.0, behind=behind, text=LEVEL)
    cost = _largest_cost(winner, loser, weights)
    text = f"{behind:.1f} behind"
    if is_without_data(loser.source):
        text += f", by the neutral score: {WITHOUT_DATA[loser.source]}"
    elif cost.term:
        text += f", most of it {head_of(cost.term)}"
    return Loss(term=cost.term, points=cost.points, behind=behind, text=text)


def _largest_cost(winner: Terms, loser: Terms, weights: Weights | None) -> _Cost:
    if is_without_data(loser.source):
        return _Cost(NEUTRAL, winner.score - loser.score)
    if weights is None or formula_of(winner.source) is not formula_of(loser.source):
        return _NOT_COMPARED
    best, worse = points_of(winner, weights), points_of(loser, weights)
    costs = {term: best.get(term, 0.0) - worse.get(term, 0.0) for term in sorted({*best, *worse})}
    term = max(costs, key=lambda name: costs[name], default="")
    if not term or costs[term] <= 0:
        return _NOT_COMPARED
    return _Cost(_most_watts(winner, loser) if term == ENERGY.start_name else term, costs[term])


def _most_watts(winner: Terms, loser: Terms) -> str:
    """The term by which the loser costs most watts more than the winner. Both have the same ones:
    one formula gave both scores."""
    best, worse = watts_of(winner), watts_of(loser)
    return max(best, key=lambda name: worse[name] - best[name])


def term_set(terms: Terms, weights: Weights | None) -> TermSet:
    """Without `weights` the points are unknown."""
    points = None if weights is None or not is_known(terms.source) else points_of(terms, weights)
    return TermSet(
        score=terms.score, source=terms.source, values=applying_values(terms), points=points
    )


# --- candidates -------------------------------------------------------------------------------


def candidates_of(
    event: AnyEvent | None,
    names: RowNames,
    weights: Weights | None,
    computed: Sequence[Terms] = (),
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
    event: PrioritizeDecided,
    names: RowNames,
    weights: Weights | None,
    computed: Sequence[Terms],
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
    return [candidate_of(node, named[node], known.get(node), winner, weights) for node in order]


def refused_of(reason: str, nodes: int, examples: Sequence[str]) -> Refused:
    return Refused(reason=reason, nodes=nodes, examples=list(examples))


def candidate_of(
    node: str,
    answer: int | None,
    terms: Terms | None,
    winner: Terms | None,
    weights: Weights | None,
) -> Candidate:
    """Its terms beside those of the winner; without `terms` the log does not have them."""
    loss, values, verdict = None, None, ""
    try:
        if terms and winner and terms.node != winner.node:
            loss = loss_of(winner, terms, weights)
        values = term_set(terms, weights) if terms else None
    except Exception as fault:  # anything: the other candidates must be shown
        verdict = failed_text(fault)
    return Candidate(node=node, verdict=verdict, answer=answer, terms=values, loss=loss)


def scored_candidates(scored: PrioritizeDecided, weights: Weights | None) -> list[Candidate]:
    """Those whose terms the entry lists, best first."""
    winner = scored.top[0] if scored.top else None
    return [candidate_of(terms.node, None, terms, winner, weights) for terms in scored.top]


def recomputed_terms(
    event: PrioritizeDecided, twin_columns: TwinColumns, weights: Weights
) -> tuple[list[Terms], bool]:
    """The recomputed terms of every candidate, and whether they equal the recorded digest."""
    names = names_of(event.candidates, twin_columns)
    scores = scores_again(event, twin_columns, weights)
    terms = [terms_of(scores, names, at) for at in range(len(names))]
    return terms, terms_digest(scores) == event.terms_digest


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
