"""Keeps pods that run only on eco nodes off nodes that are draining."""

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
from joulie_extender.rules.rule import Codes, Rule, RuleInput
from joulie_projections.twin.twin import NodeClass

WANTS_ECO = "the node is draining and the pod runs only on eco nodes"


class Draining(Rule[StaleClassSettings]):
    name = "draining"
    summary = "A pod that runs only on eco nodes gets no node that is draining"
    settings = StaleClassSettings
    reads_labels = True
    advice = (
        (DRAINING, "It passes when the drain ends; drain_deadline bounds it."),
        (STALE, STALE_ADVICE),
    )

    def is_for(self, pod: PodAsk) -> bool:
        is_standard = pod.workload != "performance"
        return is_standard and pod.placement == "eco-only" and not pod.exempt

    def verdicts(self, asked: RuleInput, settings: StaleClassSettings) -> Codes:
        return verdicts_by_case(asked, refuses_draining, settings.filter_stale)

    def reason(self, _: PodAsk, __: StaleClassSettings) -> str:
        return WANTS_ECO


def refuses_draining(case: Case, filter_stale: str) -> int:
    if is_trusted(case, filter_stale) and case.node_class == NodeClass.DRAINING:
        return DRAINING
    return if_stale(case, filter_stale)
