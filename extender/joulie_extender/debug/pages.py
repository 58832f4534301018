"""The debug pages: the terms of each node's score, and the newest answers about a pod."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from joulie_bus.events import FilterDecided, PodAsk, PreemptDecided, PrioritizeDecided
from joulie_extender.debug.recent_answers import VerbDecision
from joulie_extender.decide import decide
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.explained import VERBS, explained, reason_of
from joulie_extender.decide.marginal_power import MarginalPower
from joulie_extender.decide.node_terms import NodeTerms, TermColumns, node_terms_of
from joulie_extender.decide.scoring import Weights, score_with
from joulie_extender.protocol.candidates import rows_by_name
from joulie_projections.twin.arrays import Floats, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import Coefficients
from joulie_projections.twin.row_names import RowNames
from joulie_projections.twin.twin import NodeClass

# A pod of class performance: no bonus, no pressure.
_NO_POD = PodAsk(uid="", namespace="", name="", workload="performance")


def scoring_page(context: DecisionContext, weights: Weights) -> dict[str, Any]:
    twin_columns, names = context.twin_columns, sorted(context.twin_columns.rows)
    rows = rows_by_name(twin_columns, names)
    node_terms = node_terms_of(twin_columns, context.now, context.view_age_ms, weights)
    known = TermColumns(*node_terms.of(rows))
    columns = {
        "headroom": known.predicted,
        "coolingStress": known.cooling,
        "assumedPowerW": known.assumed_w,
        "baseScore": _base_scores(node_terms, twin_columns, rows, weights),
        "stale": ~node_terms.fresh[rows],
    }
    return {
        "position": context.position,
        "viewAgeMs": context.view_age_ms,
        "settings": decide.settings_id(weights),
        "coefficients": _coefficients(weights),
        "weights": decide.values_of(weights),
        "nodes": [
            {**_row(twin_columns, name), **dict(zip(columns, values, strict=True))}
            for name, *values in zip(names, *(c.tolist() for c in columns.values()), strict=True)
        ],
    }


def _base_scores(
    node_terms: NodeTerms, twin_columns: TwinColumns, rows: Ints, weights: Weights
) -> Floats:
    """The scores for a pod that adds no watts. The pods that count before it still do: their
    assumed power is part of the node's terms.
    """
    no_watts = Coefficients(0.0, 0.0, 0.0, False)
    terms = node_terms._replace(marginal_power=MarginalPower(twin_columns, no_watts))
    free = weights._replace(coefficients=no_watts, cpu_pods_on_gpu_nodes="allow")
    return score_with(terms, _NO_POD, twin_columns, rows, free).score


def _coefficients(weights: Weights) -> dict[str, float | bool]:
    return {
        "cpuUtilCoeff": weights.coefficients.cpu,
        "gpuUtilCoeffStandard": weights.coefficients.gpu_standard,
        "gpuUtilCoeffPerformance": weights.coefficients.gpu_performance,
        "memoryFactor": weights.coefficients.memory_factor,
    }


def _row(twin_columns: TwinColumns, name: str) -> dict[str, Any]:
    at = twin_columns.rows[name]

    def value(column: str) -> float:
        return float(twin_columns.floats(column)[at])

    return {
        "nodeName": name,
        "schedulableClass": NodeClass(int(twin_columns.columns["node_class"][at])).name.lower(),
        "measuredPowerW": value("measured_w"),
        "cappedPowerW": value("capped_w"),
        "nodeTdpW": value("tdp_w"),
        "powerTrendWPerMin": value("trend_w_per_min"),
        "cpuTotalCores": value("cores"),
        "cpuMaxWattsTotal": value("cpu_max_w"),
        "gpuCount": int(value("gpus")),
        "gpuMaxWattsPerGpu": value("gpu_max_w"),
        "hasGpu": value("gpus") > 0,
    }


def explanation(answers: Iterable[VerbDecision], row_names: RowNames) -> dict[str, Any] | None:
    """The newest answers about one pod, oldest first; None if there are none."""
    known = list(answers)
    if not known:
        return None
    return {
        "pod": msgspec.to_builtins(known[-1].pod),
        "answers": [_answer(answer, row_names) for answer in known],
    }


def _answer(answer: VerbDecision, row_names: RowNames) -> dict[str, Any]:
    names = decide.candidate_names(answer, row_names)
    return {
        "verb": VERBS[answer.TYPE],
        "text": explained(answer).line,
        "basis": msgspec.to_builtins(answer.basis),
        "candidates": len(names),
        **_answer_fields(answer, names),
    }


def _answer_fields(answer: VerbDecision, names: Sequence[str]) -> dict[str, Any]:
    match answer:
        case PrioritizeDecided():
            scores = decide.answered_scores(answer).tolist()
            return {
                "scores": dict(zip(names, scores, strict=True)),
                "clusterTrendWPerMin": answer.cluster_trend_w_per_min,
                "performancePressure": answer.perf_pressure,
                "best": msgspec.to_builtins(answer.top),
            }
        case FilterDecided():
            return {"reason": answer.reason, "refused": _refused(answer, names)}
        case PreemptDecided():
            return {"refused": _refused(answer, names)}


def _refused(answer: FilterDecided | PreemptDecided, names: Sequence[str]) -> dict[str, str]:
    verdicts = zip(names, answer.verdicts, strict=True)
    return {name: reason_of(code) for name, code in verdicts if code}
