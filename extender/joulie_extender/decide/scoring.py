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

import msgspec
import numpy as np

from joulie_bus.events import PodAsk, Terms
from joulie_extender.decide.exact_sums import truncated
from joulie_extender.decide.node_terms import (
    AS_TERMS,
    NEUTRAL,
    NOBODY,
    ClusterTerms,
    Known,
    Standing,
    headroom_of,
    is_all_measured,
    standing_of,
)
from joulie_extender.decide.node_terms import Basis as Basis
from joulie_extender.decide.node_terms import Weights as Weights  # who scores has them from here
from joulie_extender.decide.preferences import wishes
from joulie_extender.gpu.fit import HIGHEST, packing, points
from joulie_extender.protocol.mixing import mixers
from joulie_projections.twin.arrays import Floats, Ints
from joulie_projections.twin.columns import TwinColumns

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
# Rows that are in the standing as they are, and those that depend on a node's class.
_AS_KNOWN = slice(_TERMS.index("cooling"), _TERMS.index("marginal_w"))
_BY_CLASS = slice(_TERMS.index("bonus"), _TERMS.index("marginal_w"))
_MIXERS = mixers(len(_TERMS))
_SELDOM = ("packing", "wishes")
_SOURCES = {int(basis): basis.name.lower() for basis in Basis}


class _Term:
    """One row of the table, by its name."""

    def __set_name__(self, _: type, name: str) -> None:
        self.row = _TERMS.index(name)

    def __get__(self, scores: "Scores", _: object = None) -> Floats:
        found: Floats = scores.terms[self.row]
        return found


class Scores(msgspec.Struct, frozen=True):
    """One value per candidate in each column."""

    answer: Ints  # what kube-scheduler is told
    terms: Floats  # a row for each, in the order of `_TERMS`
    basis: Ints
    cluster: ClusterTerms
    packing: Floats | None = None  # of pods that say what cards they want
    wishes: Floats | None = None  # where somebody prefers some nodes

    score = _Term()
    headroom = _Term()
    cooling = _Term()
    trend = _Term()
    bonus = _Term()
    pressure = _Term()
    draining = _Term()
    marginal_w = _Term()
    assumed_w = _Term()


def score(
    pod: PodAsk, twin_columns: TwinColumns, rows: Ints, now: int, view_age_ms: int, weights: Weights
) -> Scores:
    """`rows` are the candidates' rows on the board; 0 stands for a node that it does not have."""
    standing = standing_of(twin_columns, now, view_age_ms, weights)
    basis = standing.basis.take(rows)
    is_measured = is_all_measured(basis)
    terms = _terms(pod, rows, standing, basis, is_measured, weights)
    total = terms[0]
    packed = packing(pod, twin_columns, rows, weights.gpu)
    wished = wishes(pod, twin_columns, rows, weights.preferences)
    for seldom in (packed, wished):
        if seldom is not None:
            total += seldom
    np.minimum(np.maximum(total, 0.0, out=total), 100.0, out=total)
    if not is_measured:
        _humble(total, basis, weights)
    return Scores(
        answer=truncated(total * (weights.score_range / 100)),
        terms=terms,
        basis=basis,
        cluster=standing.cluster,
        packing=packed,
        wishes=wished,
    )


def _terms(
    pod: PodAsk, rows: Ints, standing: Standing, basis: Ints, is_measured: bool, weights: Weights
) -> Floats:
    """A row for each, in the order of `_TERMS`; the score is their sum, as far as it goes here."""
    columns = standing.of(rows)
    known = Known(*columns)
    terms = np.empty((len(_TERMS), len(rows)))
    total, headroom, _, trend, bonus, pressure, draining, marginal, assumed = terms
    terms[_AS_KNOWN] = columns[AS_TERMS]
    if pod.workload == "standard":  # to those only does a node's class mean anything
        pressure *= weights.pressure * standing.cluster.pressure
    else:
        terms[_BY_CLASS] = 0.0
    assumed[:] = known.assumed_w
    marginal[:] = standing.marginals.of(pod, rows)
    if weights.facility:
        marginal *= known.dearness
    headroom[:] = headroom_of(known, basis, assumed + marginal, is_measured)
    np.multiply(headroom, weights.headroom, out=total)
    for more in (known.reserve, trend, bonus):
        total += more
    total -= pressure
    total -= draining
    return terms


def gpu_score(pod: PodAsk, twin_columns: TwinColumns, rows: Ints, weights: Weights) -> Scores:
    """Of cards alone, 0..10, whatever the range of the others."""
    packed = points(pod, twin_columns, rows, weights.gpu)
    wished = wishes(pod, twin_columns, rows, weights.preferences)
    of_ten = packed if wished is None else np.clip(packed + wished / HIGHEST, 0.0, HIGHEST)
    terms = np.zeros((len(_TERMS), len(rows)))
    terms[0] = of_ten
    return Scores(
        answer=truncated(of_ten),
        terms=terms,
        basis=np.full(len(rows), Basis.CARDS),
        cluster=NOBODY,
        packing=packed,
        wishes=wished,
    )


def _humble(scores: Floats, basis: Ints, weights: Weights) -> None:
    """Unknown never scores best, not even where all that is known is bad."""
    neutral = basis <= NEUTRAL
    if not neutral.any():
        return
    known = scores[~neutral]
    scores[neutral] = min(weights.neutral, float(known.max())) if len(known) else weights.neutral


def terms_digest(scores: Scores) -> bytes:
    """Every float of every candidate in 32 bytes: equal only if all are, to the last bit.

    All terms of a candidate are mixed into one word, and the words are hashed.
    """
    digest = hashlib.sha256((_MIXERS @ scores.terms.astype("<f8", copy=False).view("<u8")).data)
    for name in _SELDOM:
        if (seldom := getattr(scores, name)) is not None:
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(seldom, "<f8").data)
    digest.update(scores.basis.astype("<i1").data)
    return digest.digest()


def top_terms(scores: Scores, names: Sequence[str], count: int) -> list[Terms]:
    """Of the best, in full."""
    places = best(scores, count)
    figures: list[list[float]] = scores.terms.take(places, axis=1).T.tolist()
    return [_told(scores, names, at, of) for at, of in zip(places, figures, strict=True)]


def terms_of(scores: Scores, names: Sequence[str], at: int) -> Terms:
    return _told(scores, names, at, scores.terms[:, at].tolist())


def _told(scores: Scores, names: Sequence[str], at: int, figures: list[float]) -> Terms:
    values: dict[str, float] = dict(zip(_TERMS, figures, strict=True))
    for name in _SELDOM:
        if (seldom := getattr(scores, name)) is not None:
            values[name] = float(seldom[at])
    return Terms(node=names[at], source=_SOURCES[scores.basis.item(at)], **values)


def best(scores: Scores, count: int) -> list[int]:
    """The highest scores first; ties in the order of the request."""
    left, places = scores.score.copy(), list[int]()
    for _ in range(min(count, len(left))):
        places.append(int(left.argmax()))  # of equal ones the first
        left[places[-1]] = -np.inf
    return places
