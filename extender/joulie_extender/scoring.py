"""How good each candidate is for this pod, from 0 to 100, with every term of it. Pure.

    projected = measured + assumed + marginal
    headroom  = (capped - projected) / capped x 100
    score     = 0.7 headroom + 0.15 (100 - cooling) + trend + bonus - pressure - draining

`assumed` is what the pods draw that the reading does not show yet; without a reading, all pods.
A node of which nothing fresh is known gets the neutral score, or that of the best known candidate
if this is less: never preferred, never refused.
"""

import hashlib
import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_bus.events import PodAsk, Terms
from joulie_extender.gpu import HIGHEST, GpuWeights, packing, points
from joulie_extender.preferences import Preferences, wishes
from joulie_projections.board import Board, Floats, Ints, mean
from joulie_projections.cooling import Heat, model_named, stress
from joulie_projections.power import Coefficients, marginal_w
from joulie_projections.twins import NodeClass, Source

Bools = npt.NDArray[np.bool_]
_FOREVER = 2**63 - 1


class Basis(IntEnum):
    """What a candidate's headroom rests on."""

    NEUTRAL = 0  # nothing fresh is known
    PREDICTED = 1  # no fresh power reading: caps and cooling alone
    MEASURED = 2
    CARDS = 3  # not asked: the score is about cards alone


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


class Scores(NamedTuple):
    """One value per candidate in each column."""

    answer: Ints  # what kube-scheduler is told
    score: Floats
    headroom: Floats
    cooling: Floats
    trend: Floats
    bonus: Floats
    pressure: Floats
    draining: Floats
    marginal_w: Floats
    assumed_w: Floats
    basis: Ints
    cluster: ClusterTerms
    packing: Floats | None = None  # of pods that say what cards they want
    wishes: Floats | None = None  # where somebody prefers some nodes


class Standing(NamedTuple):
    """What a board says to some weights at a moment, before any pod; one value per row."""

    basis: Ints
    read: Bools  # whether the last reading is fresh
    cooling: Floats
    predicted: Floats  # headroom by caps and cooling alone
    assumed_w: Floats  # what the pods draw that no fresh reading shows
    cluster: ClusterTerms


class _Kept(NamedTuple):
    """A standing is the same until the next twin or reading gets too old."""

    since: int
    until: int
    is_view_old: bool
    standing: Standing

    def holds(self, now: int, is_view_old: bool) -> bool:
        return self.since <= now <= self.until and self.is_view_old == is_view_old


def score(
    pod: PodAsk, board: Board, rows: Ints, now: int, view_age_ms: int, weights: Weights
) -> Scores:
    """`rows` are the candidates' rows on the board; 0 stands for a node that it does not have."""
    standing = standing_of(board, now, view_age_ms, weights)
    cluster = standing.cluster
    basis, cooling = standing.basis[rows], standing.cooling[rows]
    marginal = _marginal(pod, board, rows, weights)
    headroom = _headroom(board, standing, rows, marginal)
    trend = _trend(board, standing, rows, weights)
    bonus, pressure, draining = _by_class(pod, board.columns["node_class"][rows], cluster, weights)
    total = (
        weights.headroom * headroom
        + weights.cooling * (100 - cooling)
        + trend
        + bonus
        - pressure
        - draining
    )
    packed = packing(pod, board, rows, weights.gpu)
    wished = wishes(pod, board, rows, weights.preferences)
    for seldom in (packed, wished):
        if seldom is not None:
            total = total + seldom
    final = _humbled(np.clip(total, 0.0, 100.0), basis == Basis.NEUTRAL, weights)
    answer = np.trunc(final * (weights.score_range / 100)).astype(np.int64)
    terms = (headroom, cooling, trend, bonus, pressure, draining, marginal)
    return Scores(answer, final, *terms, standing.assumed_w[rows], basis, cluster, packed, wished)


def gpu_score(pod: PodAsk, board: Board, rows: Ints, weights: Weights) -> Scores:
    """Of cards alone, 0..10, whatever the range of the others."""
    packed, nothing = points(pod, board, rows, weights.gpu), np.zeros(len(rows))
    wished = wishes(pod, board, rows, weights.preferences)
    of_ten = packed if wished is None else np.clip(packed + wished / HIGHEST, 0.0, HIGHEST)
    return Scores(
        answer=of_ten.astype(np.int64),
        score=of_ten,
        headroom=nothing,
        cooling=nothing,
        trend=nothing,
        bonus=nothing,
        pressure=nothing,
        draining=nothing,
        marginal_w=nothing,
        assumed_w=nothing,
        basis=np.full(len(rows), Basis.CARDS),
        cluster=ClusterTerms(0.0, 0.0),
        packing=packed,
        wishes=wished,
    )


def _humbled(scores: Floats, neutral: Bools, weights: Weights) -> Floats:
    """Unknown never scores best, not even where all that is known is bad."""
    if not neutral.any():
        return scores
    known = scores[~neutral]
    least = min(weights.neutral, float(known.max())) if len(known) else weights.neutral
    return np.where(neutral, least, scores)


def _marginal(pod: PodAsk, board: Board, rows: Ints, weights: Weights) -> Floats:
    watts = marginal_w(pod, board.rated(rows), weights.coefficients)
    if not weights.facility:
        return watts
    polled = board.columns["is_polled"][rows]
    return watts * np.where(polled, np.maximum(1.0, board.floats("pue")[rows]), 1.0)


def _trend(board: Board, standing: Standing, rows: Ints, weights: Weights) -> Floats:
    """Of fresh readings only: what rose or fell long ago says nothing."""
    scale = weights.trend_scale
    if abs(standing.cluster.trend_w_per_min) > weights.burst_w_per_min:
        scale = weights.trend_burst_scale
    limit = weights.trend_limit
    trend = -np.clip(board.floats("trend_w_per_min")[rows] / scale, -limit, limit)
    return np.where(standing.read[rows], trend, 0.0)


def _by_class(
    pod: PodAsk, classes: npt.NDArray[np.int8], cluster: ClusterTerms, weights: Weights
) -> tuple[Floats, Floats, Floats]:
    """Bonus, pressure and draining: what a node's class means to a standard pod."""
    if pod.workload != "standard":
        nothing = np.zeros(len(classes))
        return nothing, nothing, nothing
    return (
        np.where(classes == NodeClass.ECO, weights.eco_bonus, 0.0),
        np.where(classes == NodeClass.PERFORMANCE, weights.pressure * cluster.pressure, 0.0),
        np.where(classes == NodeClass.DRAINING, weights.draining_penalty, 0.0),
    )


# --- what all pods see of a board -------------------------------------------------------------


def standing_of(board: Board, now: int, view_age_ms: int, weights: Weights) -> Standing:
    """Computed once for a board, and again when something on it has become too old."""
    is_view_old = view_age_ms > weights.staleness_s * 1000
    kept = board.memo.get(weights)
    if isinstance(kept, _Kept) and kept.holds(now, is_view_old):
        return kept.standing
    fresh = fresh_rows(board, now, view_age_ms, weights)
    read = fresh & _has_reading(board, now, weights)
    limit = int(weights.staleness_s * 1e9)
    ends = (board.updated_at()[fresh], board.ints("sampled_at")[read])
    until = min((int(at.min()) + limit for at in ends if len(at)), default=_FOREVER)
    standing = _standing(board, fresh, read, weights)
    board.memo[weights] = _Kept(now, until, is_view_old, standing)
    return standing


def _standing(board: Board, fresh: Bools, read: Bools, weights: Weights) -> Standing:
    basis = _basis(board, fresh, read)
    cooling, predicted = _cooling(board, read, weights)
    arrivals, pods = (
        board.arrivals_w(weights.coefficients),
        board.pods_w(weights.coefficients),
    )
    assumed = np.where(basis == Basis.MEASURED, arrivals, pods)
    nobody = Standing(basis, read, cooling, predicted, assumed, ClusterTerms(0.0, 0.0))
    return nobody._replace(cluster=_cluster_terms(board, nobody))


def fresh_rows(board: Board, now: int, view_age_ms: int, weights: Weights) -> Bools:
    """Twins that somebody has kept up to date. An old view makes all of them stale."""
    updated = board.updated_at()
    if view_age_ms > weights.staleness_s * 1000:
        return np.zeros(len(updated), np.bool_)
    return (updated > 0) & (now - updated <= weights.staleness_s * 1e9)


def _has_reading(board: Board, now: int, weights: Weights) -> Bools:
    sampled = board.ints("sampled_at")
    return (sampled > 0) & (now - sampled <= weights.staleness_s * 1e9)


def _cluster_terms(board: Board, standing: Standing) -> ClusterTerms:
    """Sums are exact (`fsum`), so that no order of nodes tips the burst threshold."""
    trend = math.fsum(board.floats("trend_w_per_min")[standing.read].tolist())
    performance = board.columns["node_class"] == NodeClass.PERFORMANCE
    rows = np.flatnonzero(performance & (standing.basis != Basis.NEUTRAL))
    headroom = _headroom(board, standing, rows, np.zeros(len(rows)))
    pressure = min(100.0, max(0.0, mean(100 - headroom)))
    return ClusterTerms(trend, pressure)


def _basis(board: Board, fresh: Bools, read: Bools) -> Ints:
    """Without hardware facts there is no cap to compare with: neutral, whatever was measured."""
    known = fresh & (board.columns["hardware"] != Source.NONE)
    capped = board.floats("capped_w") > 0
    kind = np.where(read & capped, Basis.MEASURED, Basis.PREDICTED)
    return np.where(known, kind, Basis.NEUTRAL)


def _cooling(board: Board, read: Bools, weights: Weights) -> tuple[Floats, Floats]:
    """Stress and predicted headroom: the board's own, unless the settings name another model."""
    if (weights.cooling_model, weights.cooling_power) == ("linear", "cap"):
        return board.floats("cooling"), board.floats("headroom")
    power = board.floats("capped_w")
    if weights.cooling_power == "measured":
        power = np.where(read, board.floats("measured_w"), power)
    heat = Heat(power, board.floats("tdp_w"), board.floats("ambient_c"))
    cooling = stress(model_named(weights.cooling_model), heat)
    return cooling, board.predicted_headroom(cooling)


def _headroom(board: Board, standing: Standing, rows: Ints, marginal: Floats) -> Floats:
    """Of what the caps leave. Without a reading all pods count as the model has them, and a warm
    node has less: an estimate is never kinder than its caps."""
    basis = standing.basis[rows]
    capped = board.floats("capped_w")[rows]
    more = standing.assumed_w[rows] + marginal
    projected = np.where(basis == Basis.MEASURED, board.floats("measured_w")[rows], 0.0) + more
    headroom = (capped - projected) / np.where(capped > 0, capped, 1.0) * 100
    if (basis == Basis.PREDICTED).any():
        rated = board.floats("tdp_w")[rows]
        predicted = standing.predicted[rows] - more / np.where(rated > 0, rated, 1.0) * 100
        lesser = np.where(capped > 0, np.minimum(predicted, headroom), predicted)
        headroom = np.where(basis == Basis.PREDICTED, lesser, headroom)
    return np.where(basis == Basis.NEUTRAL, 0.0, np.minimum(headroom, 100.0))


_TERMS = (
    "score",
    "headroom",
    "cooling",
    "trend",
    "bonus",
    "pressure",
    "draining",
    "marginal_w",
    "assumed_w",
)
_SELDOM = ("packing", "wishes")


def terms_digest(scores: Scores) -> bytes:
    """Every float of every candidate in 32 bytes: equal only if all are, to the last bit."""
    digest = hashlib.sha256()
    for name in _TERMS:
        digest.update(np.ascontiguousarray(getattr(scores, name), "<f8").tobytes())
    for name in _SELDOM:
        if (column := getattr(scores, name)) is not None:
            digest.update(name.encode() + np.ascontiguousarray(column, "<f8").tobytes())
    digest.update(scores.basis.astype("<i1").tobytes())
    return digest.digest()


def terms_of(scores: Scores, names: list[str], at: int) -> Terms:
    values = {
        name: float(column[at])
        for name in (*_TERMS, *_SELDOM)
        if (column := getattr(scores, name)) is not None
    }
    return Terms(node=names[at], source=Basis(int(scores.basis[at])).name.lower(), **values)


def best(scores: Scores, count: int) -> list[int]:
    """The highest scores first; ties in the order of the request."""
    return np.argsort(-scores.score, kind="stable")[:count].tolist()  # type: ignore[no-any-return]
