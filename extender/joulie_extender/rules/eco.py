"""Keeps pods of class performance off nodes that save energy."""

from joulie_bus.events import PodAsk
from joulie_extender.rules.node_class import (
    DRAINING,
    STALE,
    STALE_ADVICE,
    Case,
    StaleClassSettings,
    if_stale,
    is_trusted,
    verdicts_by_case,
)
from joulie_extender.rules.rule import Codes, Rule, RuleInput, Verdict
from joulie_projections.twin.twin import NodeClass

ECO = Verdict(1, "eco", "the node is eco")
ECO_LABEL = Verdict(3, "eco by label", "its label is eco, and no newer state is known")
WANTS_PERFORMANCE = "the node is reserved for saving energy and the pod asks for performance"
WANTS_FRESH = "the node is not known to be free for a pod that asks for performance"
_TOO_FEW = (
    "Check that the class is intended. If it is, there are too few performance nodes: raise "
    "STATIC_HP_FRAC, or set POLICY_TYPE=queue_aware_v1."
)


class Eco(Rule[StaleClassSettings]):
    name = "eco"
    summary = "A pod of class performance gets no node that is eco or draining"
    settings = StaleClassSettings
    reads_labels = True
    advice = (
        (ECO, _TOO_FEW),
        (ECO_LABEL, _TOO_FEW),
        (
            DRAINING,
            f"It passes when a drain ends; drain_deadline bounds it. {_TOO_FEW}",
        ),
        (STALE, STALE_ADVICE),
    )

    def is_for(self, pod: PodAsk) -> bool:
        return pod.workload == "performance" and not pod.exempt

    def verdicts(self, asked: RuleInput, settings: StaleClassSettings) -> Codes:
        return verdicts_by_case(asked, refuses_saving, settings.filter_stale)

    def reason(self, _: PodAsk, settings: StaleClassSettings) -> str:
        return WANTS_FRESH if settings.filter_stale == "closed" else WANTS_PERFORMANCE


def refuses_saving(case: Case, filter_stale: str) -> int:
    """A fresh class decides; when it is stale, the label does, because it outlives the process."""
    node_class = case.node_class if is_trusted(case, filter_stale) else NodeClass.UNKNOWN
    match node_class:
        case NodeClass.ECO:
            return ECO
        case NodeClass.DRAINING:
            return DRAINING
        case NodeClass.UNKNOWN if case.labelled:
            return ECO_LABEL
        case _:
            return if_stale(case, filter_stale)
