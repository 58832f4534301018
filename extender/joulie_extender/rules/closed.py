"""Closes nodes to class standard while a power target needs it."""

from joulie_bus.events import PodAsk
from joulie_extender.rules.node_class import (
    Case,
    StaleClassSettings,
    is_trusted,
    verdicts_by_case,
)
from joulie_extender.rules.rule import Codes, Rule, RuleInput, Verdict
from joulie_projections.twin.columns import TwinColumns

CLOSED = Verdict(5, "closed", "it is closed to class standard, for a power target")
WANTS_POWER = "the node gets no more pods of class standard until the power target is met"


class Closed(Rule[StaleClassSettings]):
    name = "closed"
    summary = "While a power target needs it, a pod of class standard gets no node that is closed"
    settings = StaleClassSettings
    advice = ((CLOSED, "It passes when the power target ends or is met: see joulie target list."),)

    def is_for(self, pod: PodAsk) -> bool:
        return pod.workload != "performance" and not pod.exempt

    def applies(self, asked: RuleInput, _: StaleClassSettings) -> bool:
        return self.is_for(asked.pod) and _has_closed(asked.twin_columns)

    def verdicts(self, asked: RuleInput, settings: StaleClassSettings) -> Codes:
        return verdicts_by_case(asked, refuses_closed, settings.filter_stale)

    def reason(self, _: PodAsk, __: StaleClassSettings) -> str:
        return WANTS_POWER


def refuses_closed(case: Case, filter_stale: str) -> int:
    """A stale twin closes no node: the target may have ended."""
    return CLOSED if case.closed and is_trusted(case, filter_stale) else 0


def _has_closed(twin_columns: TwinColumns) -> bool:
    """Computed once for a set of columns."""
    known = twin_columns.memo.get(_has_closed)
    if known is None:
        known = twin_columns.memo[_has_closed] = bool(twin_columns.columns["closed"].any())
    return bool(known)
