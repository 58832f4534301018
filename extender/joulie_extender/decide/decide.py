"""One request, one snapshot, one answer, and the decision that can give the answer again. Pure.

Replay calls the very functions that answered: `candidates_of` and `rows_of` are each other's
counterpart, everything else is shared.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
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
    SettingsDeclared,
)
from joulie_extender.decide import preferences
from joulie_extender.decide.filter import Filtered, can_refuse, filter_nodes
from joulie_extender.decide.scoring import (
    Weights,
    gpu_score,
    score,
    terms_digest,
    top_terms,
)
from joulie_extender.decide.snapshot import Moment as Moment  # replay asks for it here
from joulie_extender.gpu.fit import GpuWeights, asks, gpu_verdicts, reason_of
from joulie_extender.gpu.models import read, written
from joulie_extender.protocol.candidates import candidates_of
from joulie_extender.protocol.candidates import rows_by_name as rows_by_name
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES
from joulie_projections.twin.arrays import Bools, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import Coefficients

CODE_VERSION = "joulie/5"  # of filter and scoring; a replay under another one says so first
EXPLAINED = 5  # candidates whose terms are kept in full; the digest covers all


class Sent(NamedTuple):
    """What a question says beside its pod and its candidates."""

    duty: Duty = "energy"  # which rules are asked for
    eco_labels: bytes = b""
    victims: tuple[str, ...] = ()  # pods that would go, and that hold cards


ENERGY = Sent()


def rows_of(candidates: Candidates) -> Ints:
    return np.frombuffer(candidates.ordinals, "<i4").astype(np.int64) + 1


def names_of(candidates: Candidates, twin_columns: TwinColumns) -> list[str]:
    """The names behind the ordinals, at the position that the decision looked at."""
    by_row = _names_by_row(twin_columns)
    strangers = iter(candidates.strangers)
    return [by_row[row] if row else next(strangers) for row in rows_of(candidates).tolist()]


def _names_by_row(twin_columns: TwinColumns) -> dict[int, str]:
    """Once for a board, not once for each of its decisions."""
    known: dict[int, str] | None = twin_columns.memo.get(_names_by_row)  # type: ignore[assignment]
    if known is None:
        known = twin_columns.memo[_names_by_row] = {
            row: name for name, row in twin_columns.rows.items()
        }
    return known


def decide_filter(
    pod: PodAsk, names: Sequence[str], moment: Moment, weights: Weights
) -> FilterDecided:
    rows = rows_by_name(moment.twin_columns, names)
    return filter_decision(pod, candidates_of(names, rows), rows, moment, weights)


def filter_decision(
    pod: PodAsk,
    candidates: Candidates,
    rows: Ints,
    moment: Moment,
    weights: Weights,
    sent: Sent = ENERGY,
) -> FilterDecided:
    basis = basis_of(moment, weights)
    if _is_of_energy_alone(pod, sent) and not can_refuse(pod):  # as most are
        nobody = bytes(len(rows))
        return FilterDecided(
            pod=pod, basis=basis, candidates=candidates, verdicts=nobody, duty=sent.duty
        )
    labels = sent.eco_labels if sent.duty != "gpu" and can_refuse(pod) else b""
    filtered = _filtered(pod, moment, rows, weights, sent._replace(eco_labels=labels))
    verdicts = filtered.verdicts.tobytes()
    return FilterDecided(
        pod=pod,
        basis=basis,
        candidates=candidates,
        verdicts=verdicts,
        reason="" if all_passed(verdicts) else filtered.reason,
        eco_labels=labels,
        duty=sent.duty,
    )


def preempt_decision(
    pod: PodAsk,
    candidates: Candidates,
    rows: Ints,
    moment: Moment,
    weights: Weights,
    sent: Sent = ENERGY,
) -> PreemptDecided:
    """What the filter would refuse with these pods gone, nobody need be evicted for."""
    return PreemptDecided(
        pod=pod,
        basis=basis_of(moment, weights),
        candidates=candidates,
        verdicts=_filtered(pod, moment, rows, weights, sent).verdicts.tobytes(),
        duty=sent.duty,
        victims=list(sent.victims),
    )


def _filtered(pod: PodAsk, moment: Moment, rows: Ints, weights: Weights, sent: Sent) -> Filtered:
    """By the rules that were asked for. One text for all nodes; it depends on the pod alone."""
    if _is_of_energy_alone(pod, sent):
        return filter_nodes(pod, moment, rows, weights, sent.eco_labels)
    cards = gpu_verdicts(pod, moment.twin_columns, rows, weights.gpu.aliases, sent.victims)
    if sent.duty == "gpu":
        return Filtered(cards, reason_of(pod))
    energy = filter_nodes(pod, moment, rows, weights, sent.eco_labels)
    reason = f"{energy.reason}, or {reason_of(pod)}" if energy.reason else reason_of(pod)
    return Filtered(np.where(energy.verdicts, energy.verdicts, cards), reason)


def _is_of_energy_alone(pod: PodAsk, sent: Sent) -> bool:
    return sent.duty == "energy" or (sent.duty == "all" and not asks(pod))


def decide_prioritize(
    pod: PodAsk, names: Sequence[str], moment: Moment, weights: Weights
) -> PrioritizeDecided:
    rows = rows_by_name(moment.twin_columns, names)
    return prioritize_decision(pod, candidates_of(names, rows), list(names), moment, weights)


def prioritize_decision(
    pod: PodAsk,
    candidates: Candidates,
    names: Sequence[str],
    moment: Moment,
    weights: Weights,
    duty: Duty = "energy",
) -> PrioritizeDecided:
    rows = rows_of(candidates)
    if duty == "gpu":
        scores = gpu_score(pod, moment.twin_columns, rows, weights)
    else:
        scores = score(pod, moment.twin_columns, rows, moment.now, moment.view_age_ms, weights)
    return PrioritizeDecided(
        pod=pod,
        basis=basis_of(moment, weights),
        candidates=candidates,
        scores=scores.answer.astype("<i2").tobytes(),
        terms_digest=terms_digest(scores),
        cluster_trend_w_per_min=scores.cluster.trend_w_per_min,
        perf_pressure=scores.cluster.pressure,
        top=top_terms(scores, names, EXPLAINED),
        duty=duty,
    )


def again(decision: Decision, twin_columns: TwinColumns, weights: Weights) -> Decision:
    """The same question to the board of that position; equal in every bit, or something differs.

    Raises KeyError or StopIteration for a candidate that was not on the board.
    """
    basis, candidates = decision.basis, decision.candidates
    moment = Moment(twin_columns, basis.view, basis.view_age_ms, basis.now)
    rows = rows_of(candidates)
    match decision:
        case FilterDecided():
            sent = Sent(decision.duty, decision.eco_labels)
            return filter_decision(decision.pod, candidates, rows, moment, weights, sent)
        case PreemptDecided():
            sent = Sent(decision.duty, victims=tuple(decision.victims))
            return preempt_decision(decision.pod, candidates, rows, moment, weights, sent)
        case PrioritizeDecided():
            names = names_of(candidates, twin_columns)
            return prioritize_decision(
                decision.pod, candidates, names, moment, weights, decision.duty
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


def basis_of(moment: Moment, weights: Weights) -> Basis:
    return Basis(
        view=moment.position,
        view_age_ms=moment.view_age_ms,
        now=moment.now,
        settings=settings_id(weights),
    )


# --- the settings, as the log keeps them ------------------------------------------------------

# What settings are not told as long as they say what was so before there were any: the settings of
# older entries keep their id.
_LATER: dict[str, float | str | bool] = {
    "gpu_packing": "share",
    "gpu_balance": 0.4,
    "gpu_resources": ",".join(GPU_RESOURCES),
}


@lru_cache(maxsize=16)
def settings_id(weights: Weights) -> str:
    body = msgspec.json.encode(values_of(weights), order="deterministic")
    return hashlib.sha256(body).hexdigest()[:16]


def values_of(weights: Weights) -> dict[str, float | str | bool]:
    values = weights._asdict()
    coefficients, gpu = values.pop("coefficients"), values.pop("gpu")
    wished = preferences.written(values.pop("preferences"))
    named = {f"coefficient_{name}": value for name, value in coefficients._asdict().items()}
    cards = {f"gpu_{name}": value for name, value in gpu._asdict().items()}
    told = {"gpu_aliases": written(gpu.aliases), "preferences": wished}
    whole = {**values, **named, **cards, **told}
    return {name: value for name, value in whole.items() if _LATER.get(name) != value}


def weights_of(declared: SettingsDeclared) -> Weights:
    """The counterpart of `values_of`: what a replica scored with, from the log."""
    values = {**_LATER, **declared.values}
    aliases = read(str(values.pop("gpu_aliases", "")))
    wished = preferences.read(str(values.pop("preferences", "")))
    cards = GpuWeights(**_taken(values, "gpu_"), aliases=aliases)
    coefficients = Coefficients(**_taken(values, "coefficient_"))
    nested = {"coefficients": coefficients, "gpu": cards, "preferences": wished}
    return Weights(**values, **nested)  # type: ignore[arg-type]


def _taken(values: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Out of `values`, without the prefix."""
    keys = [key for key in values if key.startswith(prefix)]
    return {key.removeprefix(prefix): values.pop(key) for key in keys}


def declaration(weights: Weights) -> SettingsDeclared:
    return SettingsDeclared(
        settings=settings_id(weights), code=CODE_VERSION, values=values_of(weights)
    )
