"""The debug pages: the terms of each node's score, and the newest answers about a pod."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from joulie_bus.events import FilterDecided, PodAsk, PreemptDecided, PrioritizeDecided
from joulie_extender.catalogue.declaration import settings_id, values_of
from joulie_extender.catalogue.rules import few_words_of
from joulie_extender.catalogue.weights import Weights
from joulie_extender.debug.recent_answers import VerbDecision
from joulie_extender.decide import decide
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.entry_verbs import VERBS
from joulie_extender.decide.explained import explained
from joulie_extender.decide.node_terms import node_terms_of
from joulie_extender.decide.scoring import score_with
from joulie_extender.protocol.candidates import rows_by_name
from joulie_extender.terms.marginal_power import MarginalPower
from joulie_extender.terms.term import NodeTerms
from joulie_projections.state.completeness import known_ms
from joulie_projections.twin.arrays import Floats, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import Coefficients
from joulie_projections.twin.row_names import RowNames
from joulie_projections.twin.twin import NodeClass

PAGE_S = 1.0
# A pod of class performance: no bonus, no pressure.
_NO_POD = PodAsk(uid="", namespace="", name="", workload="performance")


class ScoredNode(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A node and the terms of its score."""

    node_name: str
    schedulable_class: str
    measured_power_w: float
    capped_power_w: float
    node_tdp_w: float
    power_trend_w_per_min: float
    cpu_total_cores: float
    cpu_max_watts_total: float
    gpu_count: int
    gpu_max_watts_per_gpu: float
    has_gpu: bool
    headroom: float
    cooling_stress: float
    assumed_power_w: float
    base_score: float
    stale: bool


def scoring_page(context: DecisionContext, weights: Weights) -> dict[str, Any]:
    twin_columns, names = context.twin_columns, sorted(context.twin_columns.rows)
    rows = rows_by_name(twin_columns, names)
    node_terms = node_terms_of(twin_columns, context.now, context.oldest_ms, weights)
    terms = {
        "headroom": node_terms.of("predicted", rows),
        "cooling_stress": node_terms.of("cooling", rows),
        "assumed_power_w": node_terms.of("assumed_w", rows),
        "base_score": _base_scores(node_terms, twin_columns, rows, weights),
        "stale": ~node_terms.fresh[rows],
    }
    columns: dict[str, Sequence[Any]] = {
        "node_name": names,
        **_columns(twin_columns, rows),
        **{name: column.tolist() for name, column in terms.items()},
    }
    ordered = (columns[field] for field in ScoredNode.__struct_fields__)
    return {
        "position": context.position,
        "viewAgeMs": known_ms(context.view_age_ms),
        "viewBehindMs": None if context.behind_ms is None else known_ms(context.behind_ms),
        "settings": settings_id(weights),
        "coefficients": _coefficients(weights),
        "weights": values_of(weights),
        "nodes": list(map(ScoredNode, *ordered)),
    }


class ScoringPages:
    """Makes the page at most once in PAGE_S: it takes as long as hundreds of decisions.

    A page that is given again has its own position, and the age that its view has by now.
    """

    def __init__(self, weights: Weights, monotonic: Callable[[], float]) -> None:
        self._weights = weights
        self._monotonic = monotonic
        self._page: dict[str, Any] = {}
        self._made_at = -math.inf

    def encoded(self, context: Callable[[], DecisionContext]) -> bytes:
        elapsed_s = self._monotonic() - self._made_at
        if elapsed_s >= PAGE_S:
            page = scoring_page(context(), self._weights)
            self._page = page | {"nodes": msgspec.Raw(msgspec.json.encode(page["nodes"]))}
            self._made_at, elapsed_s = self._monotonic(), 0.0
        made_ms: int | None = self._page["viewAgeMs"]
        age_ms = None if made_ms is None else made_ms + int(elapsed_s * 1000)
        return msgspec.json.encode(self._page | {"viewAgeMs": age_ms})


def _base_scores(
    node_terms: NodeTerms, twin_columns: TwinColumns, rows: Ints, weights: Weights
) -> Floats:
    """The scores for a pod that adds no watts. The pods that count before it still do: their
    assumed power is part of the node's terms.
    """
    no_watts = Coefficients(0.0, 0.0, 0.0, False)
    terms = node_terms._replace(marginal_power=MarginalPower(twin_columns, no_watts))
    free = replace(weights, coefficients=no_watts, cpu_pods_on_gpu_nodes="allow")
    return score_with(terms, _NO_POD, twin_columns, rows, free).score


def _coefficients(weights: Weights) -> dict[str, float | bool]:
    return {
        "cpuUtilCoeff": weights.coefficients.cpu,
        "gpuUtilCoeffStandard": weights.coefficients.gpu_standard,
        "gpuUtilCoeffPerformance": weights.coefficients.gpu_performance,
        "memoryFactor": weights.coefficients.memory_factor,
    }


def _columns(twin_columns: TwinColumns, rows: Ints) -> dict[str, Sequence[Any]]:
    def values(column: str) -> list[float]:
        found: list[float] = twin_columns.floats(column)[rows].tolist()
        return found

    classes = {int(each): each.name.lower() for each in NodeClass}
    gpus = values("gpus")
    return {
        "schedulable_class": [
            classes[code] for code in twin_columns.columns["node_class"][rows].tolist()
        ],
        "measured_power_w": values("measured_w"),
        "capped_power_w": values("capped_w"),
        "node_tdp_w": values("tdp_w"),
        "power_trend_w_per_min": values("trend_w_per_min"),
        "cpu_total_cores": values("cores"),
        "cpu_max_watts_total": values("cpu_max_w"),
        "gpu_count": list(map(int, gpus)),
        "gpu_max_watts_per_gpu": values("gpu_max_w"),
        "has_gpu": [count > 0 for count in gpus],
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
    return {name: few_words_of(code) for name, code in verdicts if code}
