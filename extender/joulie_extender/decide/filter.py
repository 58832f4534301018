"""Which candidates a pod may use, by the rules about energy.

Performance pods are refused nodes that are eco or draining, and pods that run only on eco nodes
those that are draining. While a power target needs it, nodes are closed to class standard. With
`CAPACITY_RESERVE`, pods are refused nodes where they would take capacity that is kept free.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_bus.events import PodAsk
from joulie_extender.decide import reserve
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.node_terms import Weights, node_terms_of
from joulie_projections.pods.refusal import REFUSED_FOR_CORES, REFUSED_FOR_RESERVE
from joulie_projections.twin.arrays import Bools, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.twin import NodeClass

Codes = npt.NDArray[np.uint8]


class Verdict(IntEnum):
    """The reason for a refusal; the decision log keeps one verdict per candidate."""

    PASSED = 0
    ECO = 1
    DRAINING = 2
    ECO_LABEL = 3  # the class is stale; the label decided
    STALE = 4  # the class is stale, and the settings are `closed`
    CLOSED = 5  # for a power target
    RESERVED = REFUSED_FOR_RESERVE  # the pod would take capacity that is kept free
    CORES_PER_CARD = REFUSED_FOR_CORES  # the pod asks for too many, on any node


# Fixed sentences without names, numbers or "%": kube-scheduler compares, counts and formats them.
WANTS_PERFORMANCE = "the node is reserved for saving energy and the pod asks for performance"
WANTS_FRESH = "the node is not known to be free for a pod that asks for performance"
WANTS_ECO = "the node is draining and the pod runs only on eco nodes"
WANTS_POWER = "the node gets no more pods of class standard until the power target is met"
WANTS_RESERVE = "the pod would take capacity that is kept free"
WANTS_FEWER_CORES = "the pod asks for more cores per card than the cluster allows"


class Filtered(NamedTuple):
    verdicts: Codes
    reason: str  # one reason for all refused nodes; it depends on the pod alone


class Case(NamedTuple):
    """The inputs of the rules for one candidate."""

    node_class: NodeClass
    fresh: bool  # is the class up to date?
    known: bool  # is there a twin?
    labelled: bool  # is the node labelled eco?
    closed: bool  # to class standard


Rule = Callable[[Case, str], Verdict]
_EITHER = (False, True)
_CASES = [Case(*each) for each in product(NodeClass, _EITHER, _EITHER, _EITHER, _EITHER)]


def filter_nodes(
    pod: PodAsk, context: DecisionContext, rows: Ints, weights: Weights, eco_labels: bytes = b""
) -> Filtered:
    """`eco_labels` are those of the nodes in the request; without them the stored labels apply."""
    is_reserved = reserve.applies(pod, weights.reserve)
    if is_reserved and reserve.too_many_cores(pod, weights.reserve):
        return Filtered(np.full(len(rows), Verdict.CORES_PER_CARD, np.uint8), WANTS_FEWER_CORES)
    filtered = _by_class(pod, context, rows, weights, eco_labels)
    if not is_reserved:
        return filtered
    kept = reserve.refused(pod, context.twin_columns, rows, weights.reserve)
    reason = f"{filtered.reason}, or {WANTS_RESERVE}" if filtered.reason else WANTS_RESERVE
    free = filtered.verdicts == Verdict.PASSED
    return Filtered(np.where(kept & free, np.uint8(Verdict.RESERVED), filtered.verdicts), reason)


def _by_class(
    pod: PodAsk, context: DecisionContext, rows: Ints, weights: Weights, eco_labels: bytes
) -> Filtered:
    if not _has_rule(pod, context.twin_columns):
        return Filtered(np.zeros(len(rows), np.uint8), "")
    twin_columns = context.twin_columns
    node_terms = node_terms_of(twin_columns, context.now, context.oldest_ms, weights)
    labels = twin_columns.columns["eco_label"]
    cases = _cases(
        twin_columns.columns["node_class"].take(rows),
        node_terms.fresh.take(rows),
        rows > 0,
        np.frombuffer(eco_labels, np.bool_) if eco_labels else labels.take(rows),
        twin_columns.columns["closed"].take(rows),
    )
    if pod.workload == "performance":
        reason = WANTS_FRESH if weights.filter_stale == "closed" else WANTS_PERFORMANCE
        return Filtered(_verdicts(refuses_saving, weights.filter_stale).take(cases), reason)
    rule, reason = refuses_closed, WANTS_POWER
    if depends_on_class(pod):
        rule = refuses_draining
        reason = f"{WANTS_ECO}, or {WANTS_POWER}" if _has_closed(twin_columns) else WANTS_ECO
    return Filtered(_verdicts(rule, weights.filter_stale).take(cases), reason)


def can_refuse(pod: PodAsk, twin_columns: TwinColumns, weights: Weights) -> bool:
    """Whether there is any node that this pod might be refused."""
    return _has_rule(pod, twin_columns) or reserve.applies(pod, weights.reserve)


def _has_rule(pod: PodAsk, twin_columns: TwinColumns) -> bool:
    return depends_on_class(pod) or (not pod.exempt and _has_closed(twin_columns))


def depends_on_class(pod: PodAsk) -> bool:
    """Whether the pod is refused nodes because of their class or their label."""
    return not pod.exempt and (pod.workload == "performance" or pod.placement == "eco-only")


def _has_closed(twin_columns: TwinColumns) -> bool:
    """Computed once for a set of columns."""
    known = twin_columns.memo.get(_has_closed)
    if known is None:
        known = twin_columns.memo[_has_closed] = bool(twin_columns.columns["closed"].any())
    return bool(known)


def _cases(classes: Codes, *each: Bools) -> Codes:
    """The index in `_CASES` of each candidate."""
    cases = classes.astype(np.uint8)
    for says in each:
        cases <<= 1
        cases |= says
    return cases


@lru_cache
def _verdicts(rule: Rule, filter_stale: str) -> Codes:
    """The verdicts of a rule for all cases, computed once; candidates are a table lookup."""
    return np.array([rule(case, filter_stale) for case in _CASES], np.uint8)


def refuses_saving(case: Case, filter_stale: str) -> Verdict:
    """A fresh class decides; when it is stale, the label does, because it outlives the process."""
    node_class = case.node_class if _is_trusted(case, filter_stale) else NodeClass.UNKNOWN
    match node_class:
        case NodeClass.ECO:
            return Verdict.ECO
        case NodeClass.DRAINING:
            return Verdict.DRAINING
        case NodeClass.UNKNOWN if case.labelled:
            return Verdict.ECO_LABEL
        case _:
            return _if_stale(case, filter_stale)


def refuses_draining(case: Case, filter_stale: str) -> Verdict:
    if _is_trusted(case, filter_stale) and case.node_class == NodeClass.DRAINING:
        return Verdict.DRAINING
    return refuses_closed(case, filter_stale) or _if_stale(case, filter_stale)


def refuses_closed(case: Case, filter_stale: str) -> Verdict:
    """A stale twin closes no node: the target may have ended."""
    is_closed = case.closed and _is_trusted(case, filter_stale)
    return Verdict.CLOSED if is_closed else Verdict.PASSED


def _is_trusted(case: Case, filter_stale: str) -> bool:
    return case.fresh or filter_stale == "twin"


def _if_stale(case: Case, filter_stale: str) -> Verdict:
    """Refuses a known twin that is too old, if the settings are `closed`."""
    is_refused = filter_stale == "closed" and case.known and not case.fresh
    return Verdict.STALE if is_refused else Verdict.PASSED
