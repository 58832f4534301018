"""Keeps pods off nodes that they would take past a lowered cap while other nodes have room."""

import numpy as np

from joulie_extender.terms.energy import EnergyWeights
from joulie_extender.terms.headroom import headroom_of
from joulie_extender.terms.lead import points_behind
from joulie_extender.terms.term import Amount, Term, TermInput
from joulie_projections.twin.arrays import Bools, Floats

FULL_PCT = 100


class OverCap(Term[EnergyWeights]):
    """The watts that a pod adds do not say how much of the cap is left: without this term, packing
    fills a node whose cap was lowered as far as its cores last.
    """

    name = "over_cap"
    head = "over cap"
    meaning = "Points against a node whose power would exceed its lowered cap; another has room"
    settings = EnergyWeights
    is_after_clamp = True

    def value(self, asked: TermInput, _: EnergyWeights) -> Floats | None:
        return points_behind(asked, _is_over(asked))

    def points(self, value: Amount, _: EnergyWeights) -> Amount:
        return -value


def _is_over(asked: TermInput) -> Bools:
    """By the headroom that the node would have with the pod, as the other scoring computes it.

    A full node is not: no load takes it past the power that its hardware has.
    """
    columns = asked.twin_columns
    caps = (columns.ints(name).take(asked.rows) for name in ("cpu_cap_pct", "gpu_cap_pct"))
    lowered = np.minimum(*caps) < FULL_PCT
    if not lowered.any():
        return lowered
    more = asked.column("assumed_w") + asked.marginal_power.of(asked.pod, asked.rows)
    over: Bools = headroom_of(asked.column, asked.basis, more, asked.is_measured) < 0
    return over & lowered
