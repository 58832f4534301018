"""Explains the placement of a pod: the request, the decisions, the outcome.

Everything is read from the log. Terms of a candidate that the log does not list are recomputed
by the function that scored it.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from joulie_audit.chain.log_start import trimmed_hint
from joulie_audit.replay.set_backs import SetBacks
from joulie_bus.errors import NotInTheLog, Undecodable
from joulie_bus.events import (
    AnyEvent,
    Basis,
    FilterDecided,
    NodesInFlight,
    OutcomeSeen,
    PodAsk,
    PrioritizeDecided,
    SettingsDeclared,
    Terms,
    codec,
)
from joulie_extender.catalogue.declaration import weights_of
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import (
    answered_scores,
    candidate_names,
    names_of,
    scores_again,
)
from joulie_extender.decide.explained import behind_ms, refusals, view_age_ms, view_text
from joulie_extender.decide.scoring import terms_of
from joulie_projections.history.history import EntryQuery, History, StoredEntry
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.row_names import RowNames

EXAMPLES = 3  # nodes listed per reason
EventT = TypeVar("EventT")


class Rejection(NamedTuple):
    reason: str
    refused: int
    nodes: list[str]  # at most `EXAMPLES` of them


class Outcome(NamedTuple):
    node: str
    rank: int | None  # of that node among the scores; 1 is the best
    score: int | None
    said_by: str  # the source: the log or the binding


class Explanation(NamedTuple):
    """The last scheduling attempt of a pod."""

    pod: PodAsk
    attempts: int
    decided_at: int
    view: int
    view_age_ms: int | None  # None if the extender had no view
    behind_ms: int | None  # None too in entries of older versions
    view_text: str  # the three of them in words
    settings: str
    candidates: int
    filtered: FilterDecided | None
    scored: PrioritizeDecided | None
    entries: list[int]  # their numbers in the log
    rejections: list[Rejection]
    outcome: Outcome | None

    @property
    def in_flight(self) -> NodesInFlight | None:
        """None: not known, as by a filter that several nodes passed."""
        if self.scored is not None:
            return self.scored.in_flight or ()
        return self.filtered.in_flight if self.filtered is not None else None


def read(entry: StoredEntry) -> AnyEvent | None:
    try:
        return codec.decoded(entry.message, "entry")
    except Undecodable:
        return None


Logged = Sequence[tuple[StoredEntry, AnyEvent]]


def attempts_of(history: History, pod: str, most: int | None = None) -> Logged:
    """All entries about one pod, newest first. Raises if the name is ambiguous."""
    found = list(history.find(EntryQuery(pod=pod), most))
    names = {entry.pod for entry in found if entry.pod}
    if not found:
        raise NotInTheLog(not_there(history, pod))
    if len(names) > 1 and pod not in {entry.pod_uid for entry in found}:
        raise NotInTheLog(
            f"{pod!r} matches several pods: {', '.join(sorted(names)[:5])}. Write namespace/name."
        )
    return about_newest(found)


def about_newest(found: Sequence[StoredEntry]) -> Logged:
    """The entries about the newest pod of a name: an earlier pod may have had the same one."""
    return [
        (entry, event)
        for entry in found
        if entry.pod_uid == found[0].pod_uid and (event := read(entry)) is not None
    ]


def explain_pod(history: History, pod: str, names: RowNames | None = None) -> Explanation:
    """`names` are those at the view, if they are known from elsewhere than the database."""
    found = explain_logged(history, attempts_of(history, pod), names)
    if found is None:
        raise NotInTheLog(f"{pod!r} was never filtered or scored; only its outcome is known.")
    return found


def explain_logged(
    history: History, logged: Logged, names: RowNames | None = None
) -> Explanation | None:
    """The last attempt in these entries about one pod; None if it was never filtered or scored."""
    scored = _first(logged, PrioritizeDecided)
    filtered = _first(logged, FilterDecided)
    if filtered and scored and filtered[0].pos > scored[0].pos:
        scored = None  # the last attempt ended with the filter
    last = scored or filtered
    if last is None:
        return None
    basis = last[1].basis
    names = history.row_names(basis.view) if names is None else names
    return Explanation(
        pod=last[1].pod,
        attempts=sum(isinstance(event, FilterDecided) for _, event in logged),
        decided_at=basis.now,
        view=basis.view,
        view_age_ms=view_age_ms(basis),
        behind_ms=behind_ms(basis),
        view_text=view_text(basis) + _lost(history, basis),
        settings=basis.settings,
        candidates=last[1].candidates.count,
        filtered=filtered[1] if filtered else None,
        scored=scored[1] if scored else None,
        entries=[each[0].pos for each in (filtered, scored) if each],
        rejections=_rejections(filtered[1], names) if filtered else [],
        outcome=_outcome_seen(logged),
    )


def _lost(history: History, basis: Basis) -> str:
    is_lost = SetBacks.of(history).took_back(basis.incarnation, basis.view, basis.now)
    return "; the database lost this state afterwards, so names and scores may differ" * is_lost


def outcome_of(scored: PrioritizeDecided | None, node: str, names: RowNames) -> Outcome:
    """The rank of the node that a pod was bound to."""
    listed = candidate_names(scored, names) if scored else []
    if scored is None or node not in listed:
        return Outcome(node, None, None, "its binding")
    answers: list[int] = answered_scores(scored).tolist()
    own = answers[listed.index(node)]
    return Outcome(node, 1 + sum(answer > own for answer in answers), own, "its binding")


def recompute_terms(
    scored: PrioritizeDecided, node: str, twin_columns: TwinColumns, weights: Weights
) -> Terms | None:
    """The terms of any candidate, computed from the twins' columns of the decision."""
    names = names_of(scored.candidates, twin_columns)
    if node not in names:
        return None
    scores = scores_again(scored, twin_columns, weights)
    return terms_of(scores, names, names.index(node))


def weights_in(history: History, settings: str) -> Weights | None:
    for entry in history.declarations():
        declared = read(entry)
        if isinstance(declared, SettingsDeclared) and declared.settings == settings:
            return weights_of(declared)
    return None


def _first(logged: Logged, kind: type[EventT]) -> tuple[StoredEntry, EventT] | None:
    return next(((entry, event) for entry, event in logged if isinstance(event, kind)), None)


def _rejections(filtered: FilterDecided, names: RowNames) -> list[Rejection]:
    return [
        Rejection(refusal.reason, len(refusal.nodes), refusal.nodes[:EXAMPLES])
        for refusal in refusals(filtered, names)
    ]


def _outcome_seen(logged: Logged) -> Outcome | None:
    seen = _first(logged, OutcomeSeen)
    if seen is None:
        return None
    event = seen[1]
    return Outcome(event.node, event.rank, event.score, "the log")


def not_there(history: History, pod: str) -> str:
    newest = history.pod_names(3)
    if pod in history.row_names().nodes():
        return f"{pod!r} is a node, not a pod. `joulie explain node {pod}` explains it."
    if not newest:
        return (
            "The log has no decisions yet: the extender has received no request. "
            "`joulie status` shows the running components."
        )
    return (
        f"No decision about {pod!r} is in the log. Write namespace/name or the pod's uid; "
        f"the newest are {', '.join(newest)}. `joulie decisions` lists more. kube-scheduler asks "
        "only about pods that a node can run by its own rules: `kubectl describe pod` shows those."
        + (f" For earlier ones: {trimmed_hint(cut)}" if (cut := history.cut()) else "")
    )
