"""Keeps pods off nodes that they would take past their cap while other nodes have room."""

from joulie_extender.terms.energy import EnergyWeights
from joulie_extender.terms.headroom import headroom_of
from joulie_extender.terms.lead import points_behind
from joulie_extender.terms.term import Amount, Term, TermInput
from joulie_projections.twin.arrays import Bools, Floats

SINCE = 3.0  # the formula of energy scores that has this term


class OverCap(Term[EnergyWeights]):
    """The watts that a pod adds do not say how much of the cap is left: without this term, packing
    fills a node whose cap was lowered as far as its cores last.
    """

    name = "over_cap"
    head = "over cap"
    meaning = "Points against a node whose power would exceed its cap, while another has room"
    settings = EnergyWeights
    is_after_clamp = True

    def value(self, asked: TermInput, settings: EnergyWeights) -> Floats | None:
        if settings.energy_formula < SINCE:
            return None
        return points_behind(asked, _is_over(asked))

    def points(self, value: Amount, _: EnergyWeights) -> Amount:
        return -value


def _is_over(asked: TermInput) -> Bools:
    """By the headroom that the node would have with the pod, as the other scoring computes it."""
    more = asked.column("assumed_w") + asked.marginal_power.of(asked.pod, asked.rows)
    over: Bools = headroom_of(asked.column, asked.basis, more, asked.is_measured) < 0
    return over
