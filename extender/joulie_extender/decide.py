"""One request, one snapshot, one answer, and the decision that can give the answer again. Pure.

Replay calls the very functions that answered: `candidates_of` and `rows_of` are each other's
counterpart, everything else is shared.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np

from joulie_bus.events import (
    Basis,
    Candidates,
    FilterDecided,
    PodAsk,
    PreemptDecided,
    PrioritizeDecided,
    SettingsDeclared,
)
from joulie_extender.candidates import candidates_of
from joulie_extender.candidates import rows_by_name as rows_by_name
from joulie_extender.filter import can_refuse, filter_nodes
from joulie_extender.moment import Moment as Moment  # replay asks for it here
from joulie_extender.scoring import Weights, best, score, terms_digest, terms_of
from joulie_projections.board import Board, Ints
from joulie_projections.power import Coefficients

CODE_VERSION = "joulie/2"  # of filter and scoring; a replay under another one says so first
EXPLAINED = 5  # candidates whose terms are kept in full; the digest covers all


def rows_of(candidates: Candidates) -> Ints:
    return np.frombuffer(candidates.ordinals, "<i4").astype(np.int64) + 1


def names_of(candidates: Candidates, board: Board) -> list[str]:
    """The names behind the ordinals, at the position that the decision looked at."""
    by_row = _names_by_row(board)
    strangers = iter(candidates.strangers)
    return [by_row[row] if row else next(strangers) for row in rows_of(candidates).tolist()]


def _names_by_row(board: Board) -> dict[int, str]:
    """Once for a board, not once for each of its decisions."""
    known: dict[int, str] | None = board.memo.get(_names_by_row)  # type: ignore[assignment]
    if known is None:
        known = board.memo[_names_by_row] = {row: name for name, row in board.rows.items()}
    return known


def decide_filter(
    pod: PodAsk, names: Sequence[str], moment: Moment, weights: Weights
) -> FilterDecided:
    rows = rows_by_name(moment.board, names)
    return filter_decision(pod, candidates_of(names, rows), rows, moment, weights)


def filter_decision(
    pod: PodAsk,
    candidates: Candidates,
    rows: Ints,
    moment: Moment,
    weights: Weights,
    eco_labels: bytes = b"",
) -> FilterDecided:
    labels = eco_labels if can_refuse(pod) else b""
    filtered = filter_nodes(pod, moment, rows, weights, labels)
    verdicts = filtered.verdicts.tobytes()
    return FilterDecided(
        pod=pod,
        basis=basis_of(moment, weights),
        candidates=candidates,
        verdicts=verdicts,
        reason="" if all_passed(verdicts) else filtered.reason,
        eco_labels=labels,
    )


def preempt_decision(
    pod: PodAsk, candidates: Candidates, rows: Ints, moment: Moment, weights: Weights
) -> PreemptDecided:
    """What the filter would refuse, nobody need be evicted for."""
    return PreemptDecided(
        pod=pod,
        basis=basis_of(moment, weights),
        candidates=candidates,
        verdicts=filter_nodes(pod, moment, rows, weights).verdicts.tobytes(),
    )


def decide_prioritize(
    pod: PodAsk, names: Sequence[str], moment: Moment, weights: Weights
) -> PrioritizeDecided:
    rows = rows_by_name(moment.board, names)
    return prioritize_decision(pod, candidates_of(names, rows), list(names), moment, weights)


def prioritize_decision(
    pod: PodAsk, candidates: Candidates, names: list[str], moment: Moment, weights: Weights
) -> PrioritizeDecided:
    rows = rows_of(candidates)
    scores = score(pod, moment.board, rows, moment.now, moment.view_age_ms, weights)
    return PrioritizeDecided(
        pod=pod,
        basis=basis_of(moment, weights),
        candidates=candidates,
        scores=scores.answer.astype("<i2").tobytes(),
        terms_digest=terms_digest(scores),
        cluster_trend_w_per_min=scores.cluster.trend_w_per_min,
        perf_pressure=scores.cluster.pressure,
        top=[terms_of(scores, names, at) for at in best(scores, EXPLAINED)],
    )


def all_passed(verdicts: bytes) -> bool:
    return verdicts.count(0) == len(verdicts)


def passed(decision: FilterDecided | PreemptDecided) -> list[bool]:
    return [verdict == 0 for verdict in decision.verdicts]


def answered_scores(decision: PrioritizeDecided) -> Ints:
    return np.frombuffer(decision.scores, "<i2").astype(np.int64)


def basis_of(moment: Moment, weights: Weights) -> Basis:
    return Basis(
        view=moment.position,
        view_age_ms=moment.view_age_ms,
        now=moment.now,
        settings=settings_id(weights),
    )


# --- the settings, as the log keeps them ------------------------------------------------------


@lru_cache(maxsize=16)
def settings_id(weights: Weights) -> str:
    body = msgspec.json.encode(values_of(weights), order="deterministic")
    return hashlib.sha256(body).hexdigest()[:16]


def values_of(weights: Weights) -> dict[str, float | str | bool]:
    values = weights._asdict()
    coefficients = values.pop("coefficients")
    named = {f"coefficient_{name}": value for name, value in coefficients._asdict().items()}
    return {**values, **named}


def weights_of(declared: SettingsDeclared) -> Weights:
    """The counterpart of `values_of`: what a replica scored with, from the log."""
    prefix = "coefficient_"
    plain = {k: v for k, v in declared.values.items() if not k.startswith(prefix)}
    named = {k.removeprefix(prefix): v for k, v in declared.values.items() if k.startswith(prefix)}
    return Weights(**plain, coefficients=Coefficients(**named))  # type: ignore[arg-type]


def declaration(weights: Weights) -> SettingsDeclared:
    return SettingsDeclared(
        settings=settings_id(weights), code=CODE_VERSION, values=values_of(weights)
    )
