"""What a board says to some weights at a moment, before any pod. Pure.

Worked out once per board and not once per answer: it is most of a score.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from joulie_extender.decide.exact_sums import exact, rounded
from joulie_extender.decide.marginal_power import Marginals
from joulie_extender.decide.preferences import Preferences
from joulie_extender.gpu.fit import GpuWeights
from joulie_projections.twin.arrays import Bools, Floats, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.cooling import Heat, model_named, stress
from joulie_projections.twin.power import Coefficients
from joulie_projections.twin.twin import NodeClass, Source

_FOREVER = 2**63 - 1


class Basis(IntEnum):
    """What a candidate's headroom rests on."""

    UNDISCOVERED = -1  # fresh, but nothing is known of its hardware: neutral too
    NEUTRAL = 0  # nothing fresh is known
    PREDICTED = 1  # no fresh power reading: caps and cooling alone
    MEASURED = 2
    CARDS = 3  # not asked: the score is about cards alone


# Cooling models that look at each row by itself; of one of our users' nobody knows.
ROW_BY_ROW = ("linear", "tdp-ratio")
# As plain numbers: an enum's member takes its time to be found and compared.
NEUTRAL, MEASURED = int(Basis.NEUTRAL), int(Basis.MEASURED)


class Weights(NamedTuple):
    """Every number that scoring uses. Recorded with each decision, by the id of the whole."""

    headroom: float = 0.7
    cooling: float = 0.15
    trend_limit: float = 25.0
    trend_scale: float = 6.0
    trend_burst_scale: float = 2.0
    burst_w_per_min: float = 500.0
    eco_bonus: float = 10.0
    pressure: float = 0.3
    draining_penalty: float = 20.0
    neutral: float = 50.0
    staleness_s: float = 300.0
    score_range: float = 100.0
    cooling_model: str = "linear"
    cooling_power: str = "cap"  # or "measured", where it is
    facility: bool = False  # whether what cooling costs makes a pod's watts dearer
    filter_stale: str = "label"  # what the filter goes by when a twin is stale: or closed, or twin
    coefficients: Coefficients = Coefficients()
    gpu: GpuWeights = GpuWeights()
    preferences: Preferences = Preferences()


class ClusterTerms(NamedTuple):
    """What all candidates share, computed once."""

    trend_w_per_min: float
    pressure: float


NOBODY = ClusterTerms(0.0, 0.0)


class Known(NamedTuple):
    """All that a score is made of beside the pod: columns of a table that is looked up in once.

    The table lies row by row in memory: what an answer needs of a node is in one place.
    """

    cooling: Floats
    trend: Floats
    bonus: Floats
    pressure: Floats  # 1 where that of the cluster counts
    draining: Floats
    reserve: Floats  # the weighted term of the cooling
    assumed_w: Floats  # what the pods draw that no fresh reading shows
    measured_w: Floats  # 0 where the headroom rests on no reading
    capped_w: Floats
    whole_w: Floats  # what its headroom is a share of: never 0
    rated_w: Floats
    predicted: Floats  # headroom by caps and cooling alone
    dearness: Floats  # what a watt costs with its cooling


# Of the columns, those that are terms of a score as they stand there.
AS_TERMS = slice(0, Known._fields.index("reserve"))
_TREND, _ASSUMED = map(Known._fields.index, ("trend", "assumed_w"))
_ALL = slice(None)


class Standing(NamedTuple):
    """A board at a moment, in the eyes of some weights. `columns`: one value per row of the board.

    Whoever asks for that of the next board may be given these very columns, with what has changed
    written into them: it is to be looked at, not to be kept.
    """

    basis: Ints
    fresh: Bools  # whether somebody has kept the twin up to date
    read: Bools  # and has measured it lately
    rising: Floats  # W a minute, by these readings
    taken: Floats  # of its headroom, in per cent, before any pod
    pressing: Bools  # whether that is known, of a node for performance
    table: Floats  # of `Known`, for pods to which a node's class means something
    cluster: ClusterTerms
    marginals: Marginals

    @property
    def columns(self) -> tuple[Ints | Bools | Floats, ...]:
        """All but what is said of the whole."""
        return self[:-2]

    @property
    def assumed_w(self) -> Floats:
        """Of every row of the board."""
        return self.table[:, _ASSUMED]

    def of(self, rows: Ints) -> Floats:
        """The columns of `Known`, for these rows."""
        return self.table.take(rows, axis=0).T


class _Moment(NamedTuple):
    now: int
    view_age_ms: int
    weights: Weights

    @property
    def is_view_old(self) -> bool:
        return self.view_age_ms > self.weights.staleness_s * 1000


class _Sums(NamedTuple):
    """Over all rows, of what the cluster has in common: exact, so that no order of nodes tips the
    burst threshold, and so that rows can be taken off again.
    """

    rising: int
    taken: int
    pressing: int

    @classmethod
    def of(cls, rows: Standing) -> "_Sums":
        taken = rows.taken[rows.pressing]
        return cls(exact(rows.rising), exact(taken), len(taken))

    def with_changes(self, before: "_Sums", after: "_Sums") -> "_Sums":
        return _Sums._make(
            whole - old + new for whole, old, new in zip(self, before, after, strict=True)
        )

    def terms(self) -> ClusterTerms:
        taken = rounded(self.taken) / self.pressing if self.pressing else 0.0
        return ClusterTerms(rounded(self.rising), min(100.0, max(0.0, taken)))


class _Kept(NamedTuple):
    """A standing is the same until the next twin or reading gets too old."""

    since: int
    until: int
    is_view_old: bool
    sums: _Sums
    standing: Standing

    def holds(self, moment: _Moment) -> bool:
        return self.since <= moment.now <= self.until and self.is_view_old == moment.is_view_old


def standing_of(
    twin_columns: TwinColumns, now: int, view_age_ms: int, weights: Weights
) -> Standing:
    """Computed once for a board, and again when something on it has become too old.

    If it was computed for a board shortly before, only what has changed since is looked at again.
    The same bits come out: what a row says by itself depends on this row alone.
    """
    moment = _Moment(now, view_age_ms, weights)
    kept = _kept_in(twin_columns.memo, moment)
    if kept is None:
        kept = _carried_on(twin_columns, moment) or _afresh(twin_columns, moment)
        twin_columns.memo[weights] = kept
    return kept.standing


def _kept_in(memo: dict[object, object], moment: _Moment) -> _Kept | None:
    kept = memo.get(moment.weights)
    return kept if isinstance(kept, _Kept) and kept.holds(moment) else None


def _afresh(twin_columns: TwinColumns, moment: _Moment) -> _Kept:
    marginals = Marginals(twin_columns, moment.weights.coefficients)
    alone, until = _alone(twin_columns, moment, marginals)
    sums = _Sums.of(alone)
    standing = alone._replace(cluster=sums.terms())
    _write_trend(standing, moment.weights)
    return _Kept(moment.now, until, moment.is_view_old, sums, standing)


def _carried_on(twin_columns: TwinColumns, moment: _Moment) -> _Kept | None:
    """In the columns of the board before, which has none from now on."""
    before = None if twin_columns.since is None else _kept_in(twin_columns.since.memo, moment)
    if twin_columns.since is None or before is None:
        return None
    if moment.weights.cooling_model not in ROW_BY_ROW:
        return None
    rows, marginals = twin_columns.since.rows, before.standing.marginals
    if not marginals.holds_for(twin_columns):
        marginals = Marginals(twin_columns, moment.weights.coefficients)
    changed, until = _alone(twin_columns.only(rows), moment, marginals)
    del twin_columns.since.memo[moment.weights]
    sums = before.sums.with_changes(_Sums.of(_only(before.standing, rows)), _Sums.of(changed))
    standing = before.standing._replace(cluster=sums.terms(), marginals=marginals)
    for column, values in zip(standing.columns, changed.columns, strict=True):
        column[rows] = values
    was_burst = _is_burst(before.standing.cluster, moment.weights)
    is_as_before = was_burst == _is_burst(standing.cluster, moment.weights)
    _write_trend(standing, moment.weights, rows if is_as_before else _ALL)
    return _Kept(moment.now, min(until, before.until), moment.is_view_old, sums, standing)


def _only(standing: Standing, rows: Ints) -> Standing:
    columns = (column[rows] for column in standing.columns)
    return Standing._make([*columns, NOBODY, standing.marginals])


def _alone(
    twin_columns: TwinColumns, moment: _Moment, marginals: Marginals
) -> tuple[Standing, int]:
    """What each row says by itself; and how long that holds."""
    weights = moment.weights
    fresh = fresh_rows(twin_columns, moment.now, moment.view_age_ms, weights)
    read = fresh & _has_reading(twin_columns, moment.now, weights)
    limit = int(weights.staleness_s * 1e9)
    ends = (twin_columns.updated_at()[fresh], twin_columns.ints("sampled_at")[read])
    until = min((int(at.min()) + limit for at in ends if len(at)), default=_FOREVER)
    basis = _basis(twin_columns, fresh, read)
    known = _known(twin_columns, basis, read, weights)
    # `+ 0.0` because the sum has always been made so: not even the sign of a zero may change.
    taken = 100 - headroom_of(known, basis, known.assumed_w + 0.0, is_all_measured(basis))
    alone = Standing(
        basis=basis,
        fresh=fresh,
        read=read,
        rising=np.where(read, twin_columns.floats("trend_w_per_min"), 0.0),
        taken=taken,
        pressing=(known.pressure > 0) & (basis > NEUTRAL),
        table=np.stack(known, axis=1),
        cluster=NOBODY,
        marginals=marginals,
    )
    return alone, until


def _known(twin_columns: TwinColumns, basis: Ints, read: Bools, weights: Weights) -> Known:
    cooling, predicted = _cooling(twin_columns, read, weights)
    classes = twin_columns.columns["node_class"]
    measured = basis == Basis.MEASURED
    capped = twin_columns.floats("capped_w")
    return Known(
        cooling=cooling,
        trend=np.zeros(len(basis)),  # the others have a say in it
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
        dearness=_dearness(twin_columns),
    )


def _assumed(twin_columns: TwinColumns, measured: Bools, weights: Weights) -> Floats:
    arrivals = twin_columns.arrivals_w(weights.coefficients)
    return np.where(measured, arrivals, twin_columns.pods_w(weights.coefficients))


def _dearness(twin_columns: TwinColumns) -> Floats:
    dearer = np.maximum(1.0, twin_columns.floats("pue"))
    return np.where(twin_columns.columns["is_polled"], dearer, 1.0)


def _write_trend(standing: Standing, weights: Weights, rows: Ints | slice = _ALL) -> None:
    """Of fresh readings only: what rose or fell long ago says nothing."""
    is_burst = _is_burst(standing.cluster, weights)
    scale = weights.trend_burst_scale if is_burst else weights.trend_scale
    limit = weights.trend_limit
    trend = -np.clip(standing.rising[rows] / scale, -limit, limit)
    standing.table[rows, _TREND] = np.where(standing.read[rows], trend, 0.0)


def _is_burst(cluster: ClusterTerms, weights: Weights) -> bool:
    return abs(cluster.trend_w_per_min) > weights.burst_w_per_min


def fresh_rows(
    twin_columns: TwinColumns,
    now: int,
    view_age_ms: int,
    weights: Weights,
    rows: Ints | slice = _ALL,
) -> Bools:
    """Twins that somebody has kept up to date. An old view makes all of them stale."""
    updated = twin_columns.updated_at(rows)
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
    kind = np.where(read & capped, Basis.MEASURED, Basis.PREDICTED)
    return np.where(fresh, np.where(known, kind, Basis.UNDISCOVERED), Basis.NEUTRAL)


def _cooling(twin_columns: TwinColumns, read: Bools, weights: Weights) -> tuple[Floats, Floats]:
    """Stress and predicted headroom: the board's own, unless the settings name another model."""
    if (weights.cooling_model, weights.cooling_power) == ("linear", "cap"):
        return twin_columns.floats("cooling"), twin_columns.floats("headroom")
    power = twin_columns.floats("capped_w")
    if weights.cooling_power == "measured":
        power = np.where(read, twin_columns.floats("measured_w"), power)
    heat = Heat(power, twin_columns.floats("tdp_w"), twin_columns.floats("ambient_c"))
    cooling = stress(model_named(weights.cooling_model), heat)
    return cooling, twin_columns.predicted_headroom(cooling)


def is_all_measured(basis: Ints) -> bool:
    """As it mostly is, and then there is little to be asked."""
    return int(basis.min(initial=MEASURED)) == MEASURED


def headroom_of(known: Known, basis: Ints, more: Floats, is_measured: bool) -> Floats:
    """Of what the caps leave. Without a reading all pods count as the model has them, and a warm
    node has less: an estimate is never kinder than its caps."""
    room = known.measured_w + more
    np.subtract(known.capped_w, room, out=room)
    room /= known.whole_w
    room *= 100
    if is_measured:
        return np.minimum(room, 100.0, out=room)
    rated = known.rated_w
    predicted = known.predicted - more / np.where(rated > 0, rated, 1.0) * 100
    lesser = np.where(known.capped_w > 0, np.minimum(predicted, room), predicted)
    room = np.where(basis == Basis.PREDICTED, lesser, room)
    return np.where(basis <= NEUTRAL, 0.0, np.minimum(room, 100.0))
