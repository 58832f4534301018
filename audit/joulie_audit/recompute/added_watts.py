"""The watts that a pod adds on a node, by one formula for every node and every setting.

What the pod adds and what it keeps on there, which the energy score counts too. Prices of that
score, such as for GPUs that later pods lose, are no watts that a node draws.
"""

from collections.abc import Sequence
from dataclasses import replace

from joulie_bus.events import PrioritizeDecided
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import names_of, rows_of
from joulie_extender.decide.scoring import Scores, score
from joulie_extender.terms.energy import Activation, EnergyAdded, FirstCard, FirstProcess
from joulie_extender.terms.freshness import NEUTRAL
from joulie_projections.twin.columns import TwinColumns

DRAWN = [term.name for term in (EnergyAdded, FirstProcess, FirstCard, Activation)]


def added_watts(
    decision: PrioritizeDecided, twin_columns: TwinColumns, weights: Weights, nodes: Sequence[str]
) -> list[float | None]:
    """On each of these candidates; None where nothing fresh is known of the node."""
    names, basis = names_of(decision.candidates, twin_columns), decision.basis
    scores = score(
        decision.pod,
        twin_columns,
        rows_of(decision.candidates),
        basis.now,
        basis.oldest_ms,
        replace(weights, scoring="energy"),
        decision.in_flight,
    )
    return [_at(scores, names.index(node)) for node in nodes]


def _at(scores: Scores, at: int) -> float | None:
    if scores.basis[at] <= NEUTRAL:
        return None
    known = (name for name in DRAWN if name == EnergyAdded.name or name in scores.more)
    return sum(float(scores[name][at]) for name in known)
