"""Which candidates a pod may use: the rules of the catalogue, on the columns of one position."""

from joulie_bus.events import Duty, PodAsk
from joulie_extender.catalogue.rules import Filtered as Filtered
from joulie_extender.catalogue.rules import filtered, that_apply
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.node_terms import node_terms_of
from joulie_extender.rules.rule import RuleInput
from joulie_projections.twin.arrays import Bools, Ints


def filter_nodes(
    pod: PodAsk, context: DecisionContext, rows: Ints, weights: Weights, duty: Duty = "energy"
) -> Filtered:
    asked = question_of(pod, context, rows, weights)
    return filtered(asked, weights, that_apply(asked, weights, duty))


def question_of(
    pod: PodAsk,
    context: DecisionContext,
    rows: Ints,
    weights: Weights,
    victims: tuple[str, ...] = (),
) -> RuleInput:
    """What the rules are asked; they compute which classes are up to date when they need it."""

    def fresh() -> Bools:
        columns, age_ms = context.twin_columns, context.oldest_ms
        return node_terms_of(columns, context.now, age_ms, weights).fresh.take(rows)

    return RuleInput(pod, context.twin_columns, rows, fresh, victims)
