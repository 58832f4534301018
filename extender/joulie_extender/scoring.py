"""How good each candidate is for this pod, from 0 to 100, with every term of it. Pure.

    projected = measured + assumed + marginal
    headroom  = (capped - projected) / capped x 100
    score     = 0.7 headroom + 0.15 (100 - cooling) + trend + bonus - pressure - draining

`assumed` is what the pods draw that the reading does not show yet; without a reading, all pods.
A node of which nothing fresh is known gets the neutral score, or that of the best known candidate
if this is less: never preferred, never refused.
"""

import hashlib
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from joulie_bus.events import PodAsk, Terms
from joulie_extender.gpu import HIGHEST, packing, points
from joulie_extender.mixing import mixers
from joulie_extender.preferences import wishes
from joulie_extender.standing import NEUTRAL, ClusterTerms, Known, headroom_of, standing_of
from joulie_extender.standing import Basis as Basis
from joulie_extender.standing import Weights as Weights  # who scores has them from here
from joulie_projections.board import Board, Floats, Ints
from joulie_projections.power import Rated, marginal_w


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


def score(
    pod: PodAsk, board: Board, rows: Ints, now: int, view_age_ms: int, weights: Weights
) -> Scores:
    """`rows` are the candidates' rows on the board; 0 stands for a node that it does not have."""
    standing = standing_of(board, now, view_age_ms, weights)
    basis, known = standing.basis[rows], standing.of(pod, rows)
    marginal = _marginal(pod, known, weights)
    headroom = headroom_of(known, basis, known.assumed_w + marginal)
    total = weights.headroom * headroom
    total += known.reserve
    total += known.trend
    total += known.bonus
    total -= known.pressure
    total -= known.draining
    packed = packing(pod, board, rows, weights.gpu)
    wished = wishes(pod, board, rows, weights.preferences)
    for seldom in (packed, wished):
        if seldom is not None:
            total = total + seldom
    final = _humbled(np.minimum(np.maximum(total, 0.0), 100.0), basis, weights)
    answer = (final * (weights.score_range / 100)).astype(np.int64)
    return Scores(
        answer=answer,
        score=final,
        headroom=headroom,
        cooling=known.cooling,
        trend=known.trend,
        bonus=known.bonus,
        pressure=known.pressure,
        draining=known.draining,
        marginal_w=marginal,
        assumed_w=known.assumed_w,
        basis=basis,
        cluster=standing.cluster,
        packing=packed,
        wishes=wished,
    )


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


def _humbled(scores: Floats, basis: Ints, weights: Weights) -> Floats:
    """Unknown never scores best, not even where all that is known is bad."""
    neutral = basis == NEUTRAL
    if not neutral.any():
        return scores
    known = scores[~neutral]
    least = min(weights.neutral, float(known.max())) if len(known) else weights.neutral
    return np.where(neutral, least, scores)


def _marginal(pod: PodAsk, known: Known, weights: Weights) -> Floats:
    rated = Rated(known.cores, known.cpu_max_w, known.gpus, known.gpu_max_w)
    watts = marginal_w(pod, rated, weights.coefficients)
    return watts * known.dearness if weights.facility else watts


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
FEW = 1000  # candidates that are sorted sooner than sifted
_columns_of = attrgetter(*_TERMS)
_SOURCES = tuple(basis.name.lower() for basis in Basis)


_MIXERS = mixers(len(_TERMS))


def terms_table(scores: Scores) -> Floats:
    """A row for each term, in the order of their names."""
    return np.array(_columns_of(scores), "<f8")


def terms_digest(scores: Scores, table: Floats | None = None) -> bytes:
    """Every float of every candidate in 32 bytes: equal only if all are, to the last bit.

    All terms of a candidate are mixed into one word, and the words are hashed.
    """
    words = terms_table(scores) if table is None else table
    digest = hashlib.sha256((_MIXERS @ words.view("<u8")).data)
    for name in _SELDOM:
        if (seldom := getattr(scores, name)) is not None:
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(seldom, "<f8").data)
    digest.update(scores.basis.astype("<i1").data)
    return digest.digest()


def top_terms(scores: Scores, table: Floats, names: Sequence[str], count: int) -> list[Terms]:
    """Of the best, in full."""
    places = best(scores, count)
    values: list[list[float]] = table[:, places].T.tolist()
    return [
        _terms(scores, names, at, dict(zip(_TERMS, each, strict=True)))
        for at, each in zip(places, values, strict=True)
    ]


def terms_of(scores: Scores, names: Sequence[str], at: int) -> Terms:
    columns = zip(_TERMS, _columns_of(scores), strict=True)
    return _terms(scores, names, at, {name: column.item(at) for name, column in columns})


def _terms(scores: Scores, names: Sequence[str], at: int, values: dict[str, float]) -> Terms:
    for name in _SELDOM:
        if (seldom := getattr(scores, name)) is not None:
            values[name] = float(seldom[at])
    return Terms(node=names[at], source=_SOURCES[scores.basis.item(at)], **values)


def best(scores: Scores, count: int) -> list[int]:
    """The highest scores first; ties in the order of the request."""
    column = scores.score
    if len(column) <= FEW:
        return _in_order(column)[:count]
    least = np.partition(column, -count)[-count]
    better = np.flatnonzero(column > least)
    equal = np.flatnonzero(column == least)[: count - len(better)]
    places = np.concatenate((better, equal))
    return [places.item(at) for at in _in_order(column[places])]


def _in_order(column: Floats) -> list[int]:
    order: list[int] = np.argsort(-column, kind="stable").tolist()
    return order
