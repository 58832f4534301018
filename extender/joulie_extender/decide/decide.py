"""Makes a decision from one request and one snapshot, and recomputes it for replay.

Replay calls the functions that answered: `candidates_of` and `rows_of` are inverses, everything
else is shared.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from joulie_bus.events import (
    Basis,
    Candidates,
    Decision,
    Duty,
    FilterDecided,
    PodAsk,
    PreemptDecided,
    PrioritizeDecided,
)
from joulie_extender.catalogue.declaration import settings_id
from joulie_extender.catalogue.rules import filtered, that_apply
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.context import (
    DecisionContext as DecisionContext,  # re-exported for replay
)
from joulie_extender.decide.filter import question_of
from joulie_extender.decide.scoring import (
    Scores,
    gpu_score,
    score,
    terms_digest,
    top_terms,
    with_one_best,
)
from joulie_extender.protocol.candidates import candidates_of
from joulie_extender.protocol.candidates import rows_by_name as rows_by_name
from joulie_projections.twin.arrays import Bools, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.columns import rows_of as rows_of
from joulie_projections.twin.row_names import RowNames

EXPLAINED = 5  # candidates whose terms are kept in full; the digest covers all


class DecisionOptions(NamedTuple):
    """The arguments of a decision besides the pod and its candidates."""

    duty: Duty = "energy"  # which rules apply
    eco_labels: bytes = b""
    victims: tuple[str, ...] = ()  # pods to be preempted that hold cards


ENERGY_ONLY = DecisionOptions()


def names_of(candidates: Candidates, twin_columns: TwinColumns) -> list[str]:
    """The names by columns that are those of the position of the decision."""
    by_row = _names_by_row(twin_columns)
    strangers = iter(candidates.strangers)
    return [by_row[row] if row else next(strangers) for row in rows_of(candidates).tolist()]


def candidate_names(decision: Decision, row_names: RowNames) -> list[str]:
    """The names at the position of the view that the decision used."""
    return row_names.at(decision.basis.view).of(decision.candidates)


def _names_by_row(twin_columns: TwinColumns) -> dict[int, str]:
    """Computed once for a set of columns, not once for each of its decisions."""
    known: dict[int, str] | None = twin_columns.memo.get(_names_by_row)  # type: ignore[assignment]
    if known is None:
        known = twin_columns.memo[_names_by_row] = {
            row: name for name, row in twin_columns.rows.items()
        }
    return known


def decide_filter(
    pod: PodAsk, names: Sequence[str], context: DecisionContext, weights: Weights
) -> FilterDecided:
    rows = rows_by_name(context.twin_columns, names)
    return filter_decision(pod, candidates_of(names, rows), rows, context, weights)


def filter_decision(
    pod: PodAsk,
    candidates: Candidates,
    rows: Ints,
    context: DecisionContext,
    weights: Weights,
    options: DecisionOptions = ENERGY_ONLY,
) -> FilterDecided:
    asked = question_of(pod, context, rows, weights)
    rules = that_apply(asked, weights, options.duty)
    if any(rule.reads_labels for rule in rules):
        asked.eco_labels = options.eco_labels
    found = filtered(asked, weights, rules)
    verdicts = found.verdicts.tobytes()
    return FilterDecided(
        pod=pod,
        basis=basis_of(context, weights),
        candidates=candidates,
        verdicts=verdicts,
        reason="" if all_passed(verdicts) else found.reason,
        eco_labels=asked.eco_labels,
        duty=options.duty,
        in_flight=context.in_flight if verdicts.count(0) == 1 else None,
    )


def preempt_decision(
    pod: PodAsk,
    candidates: Candidates,
    rows: Ints,
    context: DecisionContext,
    weights: Weights,
    options: DecisionOptions = ENERGY_ONLY,
) -> PreemptDecided:
    """Refuses the nodes that the filter would refuse even without these victims: evicting is
    useless.
    """
    asked = question_of(pod, context, rows, weights, options.victims)
    found = filtered(asked, weights, that_apply(asked, weights, options.duty))
    return PreemptDecided(
        pod=pod,
        basis=basis_of(context, weights),
        candidates=candidates,
        verdicts=found.verdicts.tobytes(),
        duty=options.duty,
        victims=list(options.victims),
    )


def decide_prioritize(
    pod: PodAsk, names: Sequence[str], context: DecisionContext, weights: Weights
) -> PrioritizeDecided:
    rows = rows_by_name(context.twin_columns, names)
    return prioritize_decision(pod, candidates_of(names, rows), list(names), context, weights)


def prioritize_decision(
    pod: PodAsk,
    candidates: Candidates,
    names: Sequence[str],
    context: DecisionContext,
    weights: Weights,
    duty: Duty = "energy",
) -> PrioritizeDecided:
    scores = _scores_of(pod, rows_of(candidates), context, weights, duty)
    cluster = scores.cluster
    return PrioritizeDecided(
        pod=pod,
        basis=basis_of(context, weights),
        candidates=candidates,
        scores=scores.answer.astype("<i2").tobytes(),
        terms_digest=terms_digest(scores),
        cluster_trend_w_per_min=cluster and cluster.trend_w_per_min,
        perf_pressure=cluster and cluster.pressure,
        top=top_terms(scores, names, EXPLAINED),
        duty=duty,
        in_flight=context.in_flight,
    )


def _scores_of(
    pod: PodAsk, rows: Ints, context: DecisionContext, weights: Weights, duty: Duty
) -> Scores:
    columns, now, age_ms, flying = (
        context.twin_columns,
        context.now,
        context.oldest_ms,
        context.in_flight,
    )
    if duty == "gpu":
        scores = gpu_score(pod, columns, rows, weights, flying)
    else:
        scores = score(pod, columns, rows, now, age_ms, weights, flying)
    return scores if flying is None else with_one_best(scores, rows, pod.uid)


def scores_again(
    decision: PrioritizeDecided, twin_columns: TwinColumns, weights: Weights
) -> Scores:
    """With the terms of all candidates."""
    context = _context_of(decision, twin_columns)
    return _scores_of(decision.pod, rows_of(decision.candidates), context, weights, decision.duty)


def again(decision: Decision, twin_columns: TwinColumns, weights: Weights) -> Decision:
    """Recomputes a decision on the columns of its position; the result is bit-identical, or
    differs.

    Raises KeyError or StopIteration for a candidate that these columns do not have.
    """
    candidates, context = decision.candidates, _context_of(decision, twin_columns)
    rows = rows_of(candidates)
    match decision:
        case FilterDecided():
            options = DecisionOptions(decision.duty, decision.eco_labels)
            return filter_decision(decision.pod, candidates, rows, context, weights, options)
        case PreemptDecided():
            options = DecisionOptions(decision.duty, victims=tuple(decision.victims))
            return preempt_decision(decision.pod, candidates, rows, context, weights, options)
        case PrioritizeDecided():
            names = names_of(candidates, twin_columns)
            return prioritize_decision(
                decision.pod, candidates, names, context, weights, decision.duty
            )


def _context_of(decision: Decision, twin_columns: TwinColumns) -> DecisionContext:
    basis = decision.basis
    return DecisionContext(
        twin_columns,
        basis.view,
        basis.view_age_ms,
        basis.now,
        basis.behind_ms,
        basis.incarnation,
        None if isinstance(decision, PreemptDecided) else decision.in_flight,
    )


def all_passed(verdicts: bytes) -> bool:
    return verdicts.count(0) == len(verdicts)


def let_through(decision: FilterDecided | PreemptDecided) -> Bools:
    through: Bools = np.frombuffer(decision.verdicts, np.uint8) == 0
    return through


def passed(decision: FilterDecided | PreemptDecided) -> list[bool]:
    through: list[bool] = let_through(decision).tolist()
    return through


def answered_scores(decision: PrioritizeDecided) -> Ints:
    return np.frombuffer(decision.scores, "<i2")


def basis_of(context: DecisionContext, weights: Weights) -> Basis:
    return Basis(
        view=context.position,
        view_age_ms=context.view_age_ms,
        now=context.now,
        settings=settings_id(weights),
        behind_ms=context.behind_ms,
        incarnation=context.incarnation,
    )
