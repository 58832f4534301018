"""Makes a decision from one request and one snapshot, and recomputes it for replay.

Replay calls the functions that answered: `candidates_of` and `rows_of` are inverses, everything
else is shared.
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
from joulie_bus.runtime.presets import HEADROOM
from joulie_extender.decide import preferences
from joulie_extender.decide.context import (
    DecisionContext as DecisionContext,  # re-exported for replay
)
from joulie_extender.decide.filter import Filtered, can_refuse, depends_on_class, filter_nodes
from joulie_extender.decide.scoring import (
    Weights,
    gpu_score,
    score,
    terms_digest,
    top_terms,
)
from joulie_extender.gpu.fit import GpuWeights, asks, gpu_verdicts, reason_of
from joulie_extender.gpu.models import read, written
from joulie_extender.protocol.candidates import candidates_of
from joulie_extender.protocol.candidates import rows_by_name as rows_by_name
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES
from joulie_projections.twin import capacity_reserve
from joulie_projections.twin.arrays import Bools, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import Coefficients
from joulie_projections.twin.row_names import RowNames, ordinals_of

CODE_VERSION = "joulie/5"  # of filter and scoring; replay reports a different version first
EXPLAINED = 5  # candidates whose terms are kept in full; the digest covers all


class DecisionOptions(NamedTuple):
    """The arguments of a decision besides the pod and its candidates."""

    duty: Duty = "energy"  # which rules apply
    eco_labels: bytes = b""
    victims: tuple[str, ...] = ()  # pods to be preempted that hold cards


ENERGY_ONLY = DecisionOptions()


def rows_of(candidates: Candidates) -> Ints:
    return ordinals_of(candidates) + 1


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
    basis = basis_of(context, weights)
    is_free = _is_of_energy_alone(pod, options) and not can_refuse(
        pod, context.twin_columns, weights
    )
    if is_free:  # the common case
        all_passing = bytes(len(rows))
        return FilterDecided(
            pod=pod, basis=basis, candidates=candidates, verdicts=all_passing, duty=options.duty
        )
    labels = options.eco_labels if options.duty != "gpu" and depends_on_class(pod) else b""
    filtered = _filtered(pod, context, rows, weights, options._replace(eco_labels=labels))
    verdicts = filtered.verdicts.tobytes()
    return FilterDecided(
        pod=pod,
        basis=basis,
        candidates=candidates,
        verdicts=verdicts,
        reason="" if all_passed(verdicts) else filtered.reason,
        eco_labels=labels,
        duty=options.duty,
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
    return PreemptDecided(
        pod=pod,
        basis=basis_of(context, weights),
        candidates=candidates,
        verdicts=_filtered(pod, context, rows, weights, options).verdicts.tobytes(),
        duty=options.duty,
        victims=list(options.victims),
    )


def _filtered(
    pod: PodAsk, context: DecisionContext, rows: Ints, weights: Weights, options: DecisionOptions
) -> Filtered:
    """Applies the rules of the duty. One reason for all nodes; it depends on the pod alone."""
    if _is_of_energy_alone(pod, options):
        return filter_nodes(pod, context, rows, weights, options.eco_labels)
    cards = gpu_verdicts(pod, context.twin_columns, rows, weights.gpu.aliases, options.victims)
    if options.duty == "gpu":
        return Filtered(cards, reason_of(pod))
    energy = filter_nodes(pod, context, rows, weights, options.eco_labels)
    reason = f"{energy.reason}, or {reason_of(pod)}" if energy.reason else reason_of(pod)
    return Filtered(np.where(energy.verdicts, energy.verdicts, cards), reason)


def _is_of_energy_alone(pod: PodAsk, options: DecisionOptions) -> bool:
    return options.duty == "energy" or (options.duty == "all" and not asks(pod))


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
    rows = rows_of(candidates)
    if duty == "gpu":
        scores = gpu_score(pod, context.twin_columns, rows, weights)
    else:
        scores = score(pod, context.twin_columns, rows, context.now, context.oldest_ms, weights)
    return PrioritizeDecided(
        pod=pod,
        basis=basis_of(context, weights),
        candidates=candidates,
        scores=scores.answer.astype("<i2").tobytes(),
        terms_digest=terms_digest(scores),
        cluster_trend_w_per_min=scores.cluster.trend_w_per_min,
        perf_pressure=scores.cluster.pressure,
        top=top_terms(scores, names, EXPLAINED),
        duty=duty,
    )


def again(decision: Decision, twin_columns: TwinColumns, weights: Weights) -> Decision:
    """Recomputes a decision on the columns of its position; the result is bit-identical, or
    differs.

    Raises KeyError or StopIteration for a candidate that these columns do not have.
    """
    basis, candidates = decision.basis, decision.candidates
    context = DecisionContext(
        twin_columns,
        basis.view,
        basis.view_age_ms,
        basis.now,
        basis.behind_ms,
        basis.incarnation,
    )
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


# --- the settings, as the log keeps them ------------------------------------------------------

# Settings that were added later, with their earlier fixed values: omitted while they have these
# values, so that the ids of settings in older entries stay the same.
_ADDED_LATER: dict[str, float | str | bool] = {
    "cpu_pods_on_gpu_nodes": "allow",
    "scoring": "headroom",
    "energy_formula": 1.0,
    "gpu_packing": "share",
    "gpu_balance": 0.4,
    "gpu_resources": ",".join(GPU_RESOURCES),
    "capacity_reserve": "",
    "preset": HEADROOM,
}


@lru_cache(maxsize=16)
def settings_id(weights: Weights) -> str:
    body = msgspec.json.encode(values_of(weights), order="deterministic")
    return hashlib.sha256(body).hexdigest()[:16]


def values_of(weights: Weights) -> dict[str, float | str | bool]:
    values = weights._asdict()
    coefficients, gpu = values.pop("coefficients"), values.pop("gpu")
    preferred = preferences.written(values.pop("preferences"))
    named = {f"coefficient_{name}": value for name, value in coefficients._asdict().items()}
    cards = {f"gpu_{name}": value for name, value in gpu._asdict().items()}
    texts = {
        "gpu_aliases": written(gpu.aliases),
        "preferences": preferred,
        "capacity_reserve": capacity_reserve.written(values.pop("reserve")),
    }
    whole = {**values, **named, **cards, **texts}
    return {name: value for name, value in whole.items() if _ADDED_LATER.get(name) != value}


def weights_of(declared: SettingsDeclared) -> Weights | None:
    """The inverse of `values_of`: the weights that a replica declared in the log. None if newer
    code declared values that this code does not know, as after a rollback.
    """
    values = {**_ADDED_LATER, **declared.values}
    aliases = read(str(values.pop("gpu_aliases", "")))
    preferred = preferences.read(str(values.pop("preferences", "")))
    kept = str(values.pop("capacity_reserve"))
    try:
        nested: dict[str, Any] = {
            "coefficients": Coefficients(**_taken(values, "coefficient_")),
            "gpu": GpuWeights(**_taken(values, "gpu_"), aliases=aliases),
            "preferences": preferred,
            "reserve": capacity_reserve.capacity_reserve(kept),
        }
        return Weights(**values, **nested)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # an argument without a parameter, or an unknown reserve
        return None


def _taken(values: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Moves the values with this prefix out of `values`; the prefix is dropped."""
    keys = [key for key in values if key.startswith(prefix)]
    return {key.removeprefix(prefix): values.pop(key) for key in keys}


def declaration(weights: Weights) -> SettingsDeclared:
    return SettingsDeclared(
        settings=settings_id(weights), code=CODE_VERSION, values=values_of(weights)
    )
