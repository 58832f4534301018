"""The terms of a score that depend on the nodes and not on the pod.

Computed once per snapshot and not once per answer: they are most of the work of scoring.
"""

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.marginal_power import MarginalPower
from joulie_projections.twin.arrays import Bools, Floats, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.cooling import Heat, model_named, stress
from joulie_projections.twin.twin import NodeClass, Source

_NEVER_EXPIRES = 2**63 - 1


class ScoreBasis(IntEnum):
    """The data that a candidate's headroom is computed from."""

    UNDISCOVERED = -1  # fresh, but nothing is known of its hardware: neutral too
    NEUTRAL = 0  # nothing fresh is known
    PREDICTED = 1  # no fresh power reading: caps and cooling alone
    MEASURED = 2
    CARDS = 3  # not asked: the score is about cards alone
    ENERGY = 4  # the score follows from watts, not from headroom


# Plain integers: comparing enum members is slower.
NEUTRAL, MEASURED = int(ScoreBasis.NEUTRAL), int(ScoreBasis.MEASURED)


class ClusterTerms(NamedTuple):
    """The terms that are the same for all candidates."""

    trend_w_per_min: float
    pressure: float


NO_CLUSTER_TERMS = ClusterTerms(0.0, 0.0)


class TermColumns(NamedTuple):
    """The columns of a score that depend on the node alone, stored as one table.

    The table is row-major: all values of a node are adjacent in memory.
    """

    cooling: Floats
    trend: Floats
    bonus: Floats
    pressure: Floats  # 1 where the cluster's pressure applies
    draining: Floats
    reserve: Floats  # the weighted term of the cooling
    assumed_w: Floats  # power of pods that no fresh reading includes
    measured_w: Floats  # 0 where the headroom uses no reading
    capped_w: Floats
    whole_w: Floats  # the denominator of the headroom: never 0
    rated_w: Floats
    predicted: Floats  # headroom by caps and cooling alone
    cost_factor: Floats  # watts including cooling, per watt


# The columns that are terms of a score without change.
AS_TERMS = slice(0, TermColumns._fields.index("reserve"))


class NodeTerms(NamedTuple):
    """The terms of all nodes for one snapshot and one set of weights."""

    basis: Ints
    fresh: Bools  # whether the twin is up to date
    table: Floats  # of `TermColumns`, for standard pods
    cluster: ClusterTerms
    marginal_power: MarginalPower

    def of(self, rows: Ints) -> Floats:
        """The columns of `TermColumns` for these rows."""
        return self.table.take(rows, axis=0).T


class _Inputs(NamedTuple):
    now: int
    view_age_ms: int
    weights: Weights

    @property
    def is_view_old(self) -> bool:
        return self.view_age_ms > self.weights.staleness_s * 1000


class _CachedTerms(NamedTuple):
    """Node terms with the interval for which they hold: until the next twin or reading becomes
    stale.
    """

    since: int
    until: int
    is_view_old: bool
    node_terms: NodeTerms

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
    return kept.node_terms


def _cached_in(twin_columns: TwinColumns, weights: Weights) -> _CachedTerms | None:
    kept = twin_columns.memo.get(weights)
    return kept if isinstance(kept, _CachedTerms) else None


def _marginal_power(
    twin_columns: TwinColumns, weights: Weights, earlier: TwinColumns | None
) -> MarginalPower:
    kept = _cached_in(twin_columns, weights)
    if kept is None and earlier is not None:
        kept = _cached_in(earlier, weights)
    if kept is not None and kept.node_terms.marginal_power.is_valid_for(twin_columns):
        return kept.node_terms.marginal_power
    return MarginalPower(twin_columns, weights.coefficients)


def _computed(
    twin_columns: TwinColumns, context: _Inputs, marginal_power: MarginalPower
) -> _CachedTerms:
    weights = context.weights
    fresh = fresh_rows(twin_columns, context.now, context.view_age_ms, weights)
    read = fresh & _has_reading(twin_columns, context.now, weights)
    basis = _basis(twin_columns, fresh, read)
    known = _term_columns(twin_columns, basis, read, weights)
    rising = np.where(read, twin_columns.floats("trend_w_per_min"), 0.0)
    cluster = _cluster_terms(known, basis, rising)
    known = known._replace(trend=np.where(read, _trend(rising, cluster, weights), 0.0))
    node_terms = NodeTerms(basis, fresh, np.stack(known, axis=1), cluster, marginal_power)
    until = _valid_until(twin_columns, fresh, read, weights)
    return _CachedTerms(context.now, until, context.is_view_old, node_terms)


def _valid_until(twin_columns: TwinColumns, fresh: Bools, read: Bools, weights: Weights) -> int:
    limit = int(weights.staleness_s * 1e9)
    ends = (twin_columns.updated_at()[fresh], twin_columns.ints("sampled_at")[read])
    return min((int(at.min()) + limit for at in ends if len(at)), default=_NEVER_EXPIRES)


def _cluster_terms(known: TermColumns, basis: Ints, rising: Floats) -> ClusterTerms:
    """Sums over all rows are rounded once, so that the order of nodes changes no term."""
    # `+ 0.0` keeps the sign of a zero as in earlier versions; replay compares bits.
    taken = 100 - headroom_of(known, basis, known.assumed_w + 0.0, is_all_measured(basis))
    pressing = taken[(known.pressure > 0) & (basis > NEUTRAL)]
    pressure = math.fsum(pressing.tolist()) / len(pressing) if len(pressing) else 0.0
    return ClusterTerms(math.fsum(rising.tolist()), min(100.0, max(0.0, pressure)))


def _trend(rising: Floats, cluster: ClusterTerms, weights: Weights) -> Floats:
    """From fresh readings only: an old trend carries no information."""
    is_burst = abs(cluster.trend_w_per_min) > weights.burst_w_per_min
    scale = weights.trend_burst_scale if is_burst else weights.trend_scale
    return -np.clip(rising / scale, -weights.trend_limit, weights.trend_limit)


def _term_columns(
    twin_columns: TwinColumns, basis: Ints, read: Bools, weights: Weights
) -> TermColumns:
    cooling, predicted = _cooling(twin_columns, read, weights)
    classes = twin_columns.columns["node_class"]
    measured = basis == ScoreBasis.MEASURED
    capped = twin_columns.floats("capped_w")
    return TermColumns(
        cooling=cooling,
        trend=np.zeros(len(basis)),  # depends on the cluster; see `_trend`
        bonus=np.where(classes == NodeClass.ECO, weights.eco_bonus, 0.0),
        pressure=np.where(classes == NodeClass.PERFORMANCE, 1.0, 0.0),
        draining=np.where(classes == NodeClass.DRAINING, weights.draining_penalty, 0.0),
        reserve=weights.cooling * (100 - cooling),
        assumed_w=_assumed(twin_columns, measured, weights),
        measured_w=np.where(measured, twin_columns.floats("measured_w"), 0.0),
        capped_w=capped,
        whole_w=np.where(capped > 0, capped, 1.0),
        rated_w=twin_columns.floats("tdp_w"),
        predicted=predicted,
        cost_factor=_cost_factor(twin_columns),
    )


def _assumed(twin_columns: TwinColumns, measured: Bools, weights: Weights) -> Floats:
    arrivals = twin_columns.arrivals_w(weights.coefficients)
    return np.where(measured, arrivals, twin_columns.pods_w(weights.coefficients))


def _cost_factor(twin_columns: TwinColumns) -> Floats:
    dearer = np.maximum(1.0, twin_columns.floats("pue"))
    return np.where(twin_columns.columns["is_polled"], dearer, 1.0)


def fresh_rows(twin_columns: TwinColumns, now: int, view_age_ms: int, weights: Weights) -> Bools:
    """Rows with an up-to-date twin. A stale view makes all of them stale."""
    updated = twin_columns.updated_at()
    if view_age_ms > weights.staleness_s * 1000:
        return np.zeros(len(updated), np.bool_)
    return (updated > 0) & (now - updated <= weights.staleness_s * 1e9)


def _has_reading(twin_columns: TwinColumns, now: int, weights: Weights) -> Bools:
    sampled = twin_columns.ints("sampled_at")
    return (sampled > 0) & (now - sampled <= weights.staleness_s * 1e9)


def _basis(twin_columns: TwinColumns, fresh: Bools, read: Bools) -> Ints:
    """Without hardware facts there is no cap to compare with: neutral, whatever was measured."""
    known = twin_columns.columns["hardware"] != Source.NONE
    capped = twin_columns.floats("capped_w") > 0
    kind = np.where(read & capped, ScoreBasis.MEASURED, ScoreBasis.PREDICTED)
    return np.where(fresh, np.where(known, kind, ScoreBasis.UNDISCOVERED), ScoreBasis.NEUTRAL)


def _cooling(twin_columns: TwinColumns, read: Bools, weights: Weights) -> tuple[Floats, Floats]:
    """Cooling stress and predicted headroom: precomputed, unless settings name another model."""
    if (weights.cooling_model, weights.cooling_power) == ("linear", "cap"):
        return twin_columns.floats("cooling"), twin_columns.floats("headroom")
    power = twin_columns.floats("capped_w")
    if weights.cooling_power == "measured":
        power = np.where(read, twin_columns.floats("measured_w"), power)
    heat = Heat(power, twin_columns.floats("tdp_w"), twin_columns.floats("ambient_c"))
    cooling = stress(model_named(weights.cooling_model), heat)
    return cooling, twin_columns.predicted_headroom(cooling)


def is_all_measured(basis: Ints) -> bool:
    """The common case, which needs fewer steps."""
    return int(basis.min(initial=MEASURED)) == MEASURED


def headroom_of(known: TermColumns, basis: Ints, more: Floats, is_measured: bool) -> Floats:
    """The percentage of the cap that is left. Without a reading all pods count with their modeled
    power, and cooling stress reduces the result: an estimate never exceeds what the caps allow.
    """
    room = known.measured_w + more
    np.subtract(known.capped_w, room, out=room)
    room /= known.whole_w
    room *= 100
    if is_measured:
        return np.minimum(room, 100.0, out=room)
    rated = known.rated_w
    predicted = known.predicted - more / np.where(rated > 0, rated, 1.0) * 100
    lesser = np.where(known.capped_w > 0, np.minimum(predicted, room), predicted)
    room = np.where(basis == ScoreBasis.PREDICTED, lesser, room)
    return np.where(basis <= NEUTRAL, 0.0, np.minimum(room, 100.0))
