"""What the terms need of all nodes, whatever the pod.

Computed once per snapshot and not once per answer: it is most of the work of scoring. What is
fresh is computed with the snapshot, a column when an answer first needs it.
"""

from typing import Any, NamedTuple

from joulie_extender.catalogue.terms import NODE_COLUMNS
from joulie_extender.catalogue.weights import Weights
from joulie_extender.terms.class_points import cluster_pressure
from joulie_extender.terms.freshness import Freshness, freshness_of
from joulie_extender.terms.marginal_power import MarginalPower
from joulie_extender.terms.term import ClusterTerms, Nodes, NodeTerms
from joulie_extender.terms.trend import cluster_trend
from joulie_projections.twin.columns import TwinColumns

_NEVER_EXPIRES = 2**63 - 1


class _Inputs(NamedTuple):
    now: int
    view_age_ms: int
    weights: Weights

    @property
    def is_view_old(self) -> bool:
        return self.view_age_ms > self.weights.staleness_s * 1000


class _CachedTerms(NamedTuple):
    """With the interval for which they hold: until the next twin or reading becomes stale."""

    since: int
    until: int
    is_view_old: bool
    freshness: Freshness
    marginal_power: MarginalPower
    computed: dict[object, Any]  # what answers needed so far

    def holds(self, context: _Inputs) -> bool:
        return self.since <= context.now <= self.until and self.is_view_old == context.is_view_old


def node_terms_of(
    twin_columns: TwinColumns,
    now: int,
    view_age_ms: int,
    weights: Weights,
    earlier: TwinColumns | None = None,
) -> NodeTerms:
    """Computed once for a snapshot, and again when one of its twins or readings becomes stale.

    The watts of pods that are cached for `earlier` columns are kept while the hardware is the same.
    """
    context = _Inputs(now, view_age_ms, weights)
    kept = _cached_in(twin_columns, weights)
    if kept is None or not kept.holds(context):
        marginal_power = _marginal_power(twin_columns, weights, earlier)
        kept = twin_columns.memo[weights] = _computed(twin_columns, context, marginal_power)
    nodes = Nodes(twin_columns, kept.freshness, NODE_COLUMNS, weights, kept.computed)
    return NodeTerms(nodes, _summary, kept.marginal_power)


def _summary(nodes: Nodes) -> ClusterTerms:
    return ClusterTerms(nodes.once(cluster_trend), nodes.once(cluster_pressure))


def _cached_in(twin_columns: TwinColumns, weights: Weights) -> _CachedTerms | None:
    kept = twin_columns.memo.get(weights)
    return kept if isinstance(kept, _CachedTerms) else None


def _marginal_power(
    twin_columns: TwinColumns, weights: Weights, earlier: TwinColumns | None
) -> MarginalPower:
    kept = _cached_in(twin_columns, weights)
    if kept is None and earlier is not None:
        kept = _cached_in(earlier, weights)
    if kept is not None and kept.marginal_power.is_valid_for(twin_columns):
        return kept.marginal_power
    return MarginalPower(twin_columns, weights.coefficients)


def _computed(
    twin_columns: TwinColumns, context: _Inputs, marginal_power: MarginalPower
) -> _CachedTerms:
    weights = context.weights
    freshness = freshness_of(twin_columns, context.now, context.view_age_ms, weights)
    until = _valid_until(twin_columns, freshness, weights)
    return _CachedTerms(context.now, until, context.is_view_old, freshness, marginal_power, {})


def _valid_until(twin_columns: TwinColumns, freshness: Freshness, weights: Weights) -> int:
    limit = int(weights.staleness_s * 1e9)
    ends = (
        twin_columns.updated_at()[freshness.fresh],
        twin_columns.ints("sampled_at")[freshness.read],
    )
    return min((int(at.min()) + limit for at in ends if len(at)), default=_NEVER_EXPIRES)
