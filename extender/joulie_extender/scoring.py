"""How good each candidate is for this pod, from 0 to 100, with every term of it. Pure.

    projected = measured + marginal
    headroom  = (capped - projected) / capped x 100
    score     = 0.7 headroom + 0.15 (100 - cooling) + trend + bonus - pressure - draining

A node of which nothing fresh is known gets the neutral score: never preferred, never refused.
"""

import hashlib
import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_bus.events import PodAsk, Terms
from joulie_projections.board import Board, Floats, Ints, NodeClass, Source, mean
from joulie_projections.power import Coefficients, marginal_w

Bools = npt.NDArray[np.bool_]


class Basis(IntEnum):
    """What a candidate's headroom rests on."""

    NEUTRAL = 0  # nothing fresh is known
    PREDICTED = 1  # no fresh power reading: caps and cooling alone
    MEASURED = 2


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
    filter_stale: str = "label"  # what the filter goes by when a twin is stale: or closed, or twin
    coefficients: Coefficients = Coefficients()


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
    basis: Ints
    cluster: ClusterTerms


def score(
    pod: PodAsk, board: Board, rows: Ints, now: int, view_age_ms: int, weights: Weights
) -> Scores:
    """`rows` are the candidates' rows on the board; 0 stands for a node that it does not have."""
    fresh = fresh_rows(board, now, view_age_ms, weights)
    read = fresh & _has_reading(board, now, weights)
    cluster = cluster_terms(board, fresh, read, weights)
    marginal = marginal_w(pod, board.rated(rows), weights.coefficients)
    basis = _basis(board, fresh, read)[rows]
    headroom = _headroom(board, rows, marginal, basis)
    cooling = board.floats("cooling")[rows]
    scale = weights.trend_scale
    if abs(cluster.trend_w_per_min) > weights.burst_w_per_min:
        scale = weights.trend_burst_scale
    limit = weights.trend_limit
    trend = -np.clip(board.floats("trend_w_per_min")[rows] / scale, -limit, limit)
    classes = board.columns["node_class"][rows]
    standard = pod.workload == "standard"
    bonus = np.where((classes == NodeClass.ECO) & standard, weights.eco_bonus, 0.0)
    crowded = (classes == NodeClass.PERFORMANCE) & standard
    pressure = np.where(crowded, weights.pressure * cluster.pressure, 0.0)
    leaving = (classes == NodeClass.DRAINING) & standard
    draining = np.where(leaving, weights.draining_penalty, 0.0)
    total = (
        weights.headroom * headroom
        + weights.cooling * (100 - cooling)
        + trend
        + bonus
        - pressure
        - draining
    )
    final = np.where(basis == Basis.NEUTRAL, weights.neutral, np.clip(total, 0.0, 100.0))
    answer = np.trunc(final * (weights.score_range / 100)).astype(np.int64)
    return Scores(
        answer, final, headroom, cooling, trend, bonus, pressure, draining, marginal, basis, cluster
    )


def fresh_rows(board: Board, now: int, view_age_ms: int, weights: Weights) -> Bools:
    """Twins that somebody has kept up to date. An old view makes all of them stale."""
    updated = board.updated_at()
    if view_age_ms > weights.staleness_s * 1000:
        return np.zeros(len(updated), np.bool_)
    return (updated > 0) & (now - updated <= weights.staleness_s * 1e9)


def _has_reading(board: Board, now: int, weights: Weights) -> Bools:
    sampled = board.ints("sampled_at")
    return (sampled > 0) & (now - sampled <= weights.staleness_s * 1e9)


def cluster_terms(board: Board, fresh: Bools, read: Bools, weights: Weights) -> ClusterTerms:
    """Worked out once per board, and again only when some node has grown stale meanwhile."""
    state = (weights, fresh.tobytes(), read.tobytes())
    known = board.derived.get(ClusterTerms)
    if isinstance(known, tuple) and known[0] == state:
        return known[1]  # type: ignore[no-any-return]
    terms = _cluster_terms(board, fresh, read, weights)
    board.derived[ClusterTerms] = (state, terms)
    return terms


def _cluster_terms(board: Board, fresh: Bools, read: Bools, weights: Weights) -> ClusterTerms:
    """Sums are exact (`fsum`), so that no order of nodes tips the burst threshold."""
    trend = math.fsum(board.floats("trend_w_per_min")[read].tolist())
    performance = fresh & (board.columns["node_class"] == NodeClass.PERFORMANCE)
    rows = np.flatnonzero(performance)
    basis = _basis(board, fresh, read)[rows]
    known = basis != Basis.NEUTRAL
    headroom = _headroom(board, rows, np.zeros(len(rows)), basis)[known]
    pressure = min(100.0, max(0.0, mean(100 - headroom)))
    return ClusterTerms(trend, pressure)


def _basis(board: Board, fresh: Bools, read: Bools) -> Ints:
    """Without hardware facts there is no cap to compare with: neutral, whatever was measured."""
    known = fresh & (board.columns["hardware"] != Source.NONE)
    capped = board.floats("capped_w") > 0
    kind = np.where(read & capped, Basis.MEASURED, Basis.PREDICTED)
    return np.where(known, kind, Basis.NEUTRAL)


def _headroom(board: Board, rows: Ints, marginal: Floats, basis: Ints) -> Floats:
    capped = board.floats("capped_w")[rows]
    rated = board.floats("tdp_w")[rows]
    projected = board.floats("measured_w")[rows] + marginal
    measured = (capped - projected) / np.where(capped > 0, capped, 1.0) * 100
    share = marginal / np.where(rated > 0, rated, 1.0) * 100
    predicted = board.floats("headroom")[rows] - share
    headroom = np.where(basis == Basis.MEASURED, measured, predicted)
    return np.where(basis == Basis.NEUTRAL, 0.0, np.minimum(headroom, 100.0))


_TERMS = ("score", "headroom", "cooling", "trend", "bonus", "pressure", "draining", "marginal_w")


def terms_digest(scores: Scores) -> bytes:
    """Every float of every candidate in 32 bytes: equal only if all are, to the last bit."""
    digest = hashlib.sha256()
    for name in _TERMS:
        digest.update(np.ascontiguousarray(getattr(scores, name), "<f8").tobytes())
    digest.update(scores.basis.astype("<i1").tobytes())
    return digest.digest()


def terms_of(scores: Scores, names: list[str], at: int) -> Terms:
    values = {name: float(getattr(scores, name)[at]) for name in _TERMS}
    return Terms(node=names[at], source=Basis(int(scores.basis[at])).name.lower(), **values)


def best(scores: Scores, count: int) -> list[int]:
    """The highest scores first; ties in the order of the request."""
    return np.argsort(-scores.score, kind="stable")[:count].tolist()  # type: ignore[no-any-return]
