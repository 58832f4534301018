"""The life of a pod, oldest first: each attempt with its reason and its table, and what became of
it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from joulie_answers.schema.responses import (
    DecisionBrief,
    Outcome,
    PodBrief,
    PodMoment,
    TermTable,
)
from joulie_answers.text.score_table import score_table
from joulie_answers.text.tables import TextTable
from joulie_answers.views.decision_text import DescribedEntry, scored_candidates
from joulie_bus.events import PrioritizeDecided
from joulie_extender.catalogue.weights import Weights

MOST_TABLES = 20  # of the newest attempts; older ones have their sentence


class Known(NamedTuple):
    """What is known of a pod besides its entries, as of a moment."""

    pod: PodBrief | None
    outcome: Outcome | None
    weights: Mapping[str, Weights]  # by the id of their settings


def timeline_of(newest_first: Sequence[DescribedEntry], known: Known) -> list[PodMoment]:
    """From the first entry that is listed to the end, as far as it is known."""
    placed_on = known.outcome.node if known.outcome else ""
    attempts = list(_attempts(newest_first[::-1]))
    first = len(attempts) - MOST_TABLES
    moments = [
        _moment(attempt, known.weights if at >= first else {}, placed_on)
        for at, attempt in enumerate(attempts)
    ]
    return [*_numbered(moments), *_end(moments, known)]


def _attempts(oldest_first: Sequence[DescribedEntry]) -> Iterator[list[DescribedEntry]]:
    """A filter and the scores after it are one attempt; any other entry stands alone."""
    attempt = list[DescribedEntry]()
    for found in oldest_first:
        verb = found.brief.verb
        goes_on = verb == "prioritize" and attempt and attempt[-1].brief.verb == "filter"
        if attempt and not goes_on:
            yield attempt
            attempt = []
        attempt.append(found)
    if attempt:
        yield attempt


def _moment(
    attempt: Sequence[DescribedEntry], weights: Mapping[str, Weights], placed_on: str
) -> PodMoment:
    briefs = [found.brief for found in attempt]
    last = attempt[-1].event
    table = None
    if isinstance(last, PrioritizeDecided) and last.top and weights:
        table = table_of(last, weights.get(last.basis.settings), placed_on)
    return PodMoment(
        at_ms=briefs[0].at_ms,
        kind=_kind(briefs),
        text=" ".join([briefs[0].sentence, *(f"{brief.text}." for brief in briefs[1:])]),
        entries=[brief.entry for brief in briefs],
        table=table,
    )


def _kind(briefs: Sequence[DecisionBrief]) -> str:
    """`attempt`, or the verb of what stands alone."""
    is_attempt = briefs[0].verb in ("filter", "prioritize")
    return "attempt" if is_attempt else briefs[0].verb


def _numbered(moments: Sequence[PodMoment]) -> Iterator[PodMoment]:
    """With the number of each attempt, where there are several."""
    attempts, number = sum(moment.kind == "attempt" for moment in moments), 0
    for moment in moments:
        if moment.kind != "attempt" or attempts == 1:
            yield moment
            continue
        number += 1
        yield replace(moment, text=f"Attempt {number} of {attempts}: {moment.text}")


def _end(moments: Sequence[PodMoment], known: Known) -> Iterator[PodMoment]:
    """What the state holds beyond the entries. The log of a pod has no time of its end."""
    pod = known.pod
    if pod is None:
        yield _untimed("deleted", "The pod was deleted; its decisions remain.")
        return
    told = {moment.kind for moment in moments}
    if pod.node and not told & {"bind", "outcome"}:
        text = f"{pod.namespace}/{pod.name} is bound to {pod.node}."
        yield replace(_untimed("bound", text), at_ms=pod.bound_at_ms or None)
    if pod.phase == "finished":
        yield _untimed("finished", f"{pod.namespace}/{pod.name} has finished.")
    if pod.phase == "pending":
        yield _untimed("pending", f"{pod.namespace}/{pod.name} waits for a node.")


def _untimed(kind: str, text: str) -> PodMoment:
    return PodMoment(at_ms=None, kind=kind, text=text, entries=[], table=None)


def table_of(scored: PrioritizeDecided, weights: Weights | None, placed_on: str) -> TermTable:
    """The table that `joulie explain` prints of these scores."""
    parts = list(score_table(scored_candidates(scored, weights), placed_on))
    table = next(part for part in parts if isinstance(part, TextTable))
    return TermTable(
        head=[*table.head],
        rows=[[*row] for row in table.rows],
        notes=[part.strip() for part in parts if isinstance(part, str)],
    )
