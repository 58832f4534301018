"""The score of each candidate for a pod, from 0 to 100, with every term.

    projected = measured + assumed + marginal
    headroom  = (capped - projected) / capped x 100
    score     = 0.7 headroom + 0.15 (100 - cooling) + trend + bonus - pressure - draining

`assumed` is the power of pods that the reading does not include yet; without a reading, of all
pods. A node without fresh data gets the neutral score, or the score of the best known candidate if
that is lower: it is never preferred and never refused.

With `scoring=energy` the score follows from the watts that the pod adds; see `energy_score`.
"""

import hashlib
from collections.abc import Sequence

import msgspec
import numpy as np

from joulie_bus.events import PodAsk, Terms
from joulie_bus.events.decisions import NO_ENERGY_TERMS, EnergyTerms
from joulie_extender.catalogue.weights import Weights as Weights  # for callers of `score`
from joulie_extender.decide.energy_terms import cards_kept, energy_of
from joulie_extender.decide.node_terms import (
    AS_TERMS,
    NEUTRAL,
    NO_CLUSTER_TERMS,
    ClusterTerms,
    NodeTerms,
    TermColumns,
    headroom_of,
    is_all_measured,
    node_terms_of,
)
from joulie_extender.decide.node_terms import ScoreBasis as ScoreBasis
from joulie_extender.gpu.fit import HIGHEST, packing, points
from joulie_extender.protocol.mixing import mixers
from joulie_extender.terms.preferences import preference_points
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
# Rows copied from the node terms, and rows that depend on a node's class.
_AS_KNOWN = slice(_TERMS.index("cooling"), _TERMS.index("marginal_w"))
_BY_CLASS = slice(_TERMS.index("bonus"), _TERMS.index("marginal_w"))
_MIXERS = mixers(len(_TERMS))
_ENERGY = ("activation_w", "fragmentation_w", "reserve_w")
_POINTS = ("packing", "wishes", "cards_kept")
_OPTIONAL = (*_POINTS, *_ENERGY)
CLOSE = 1e-9  # how far below an integer a score may be and still be that integer
_SOURCES = {int(basis): basis.name.lower() for basis in ScoreBasis}


class _Term:
    """A row of the table, as an attribute."""

    def __set_name__(self, _: type, name: str) -> None:
        self.row = _TERMS.index(name)

    def __get__(self, scores: "Scores", _: object = None) -> Floats:
        found: Floats = scores.terms[self.row]
        return found


class Scores(msgspec.Struct, frozen=True):
    """One value per candidate in each column."""

    answer: Ints  # the scores in the reply
    terms: Floats  # a row for each, in the order of `_TERMS`
    basis: Ints
    cluster: ClusterTerms
    packing: Floats | None = None  # of pods with a GPU request
    wishes: Floats | None = None  # where a preference applies
    cards_kept: Floats | None = None  # points taken from nodes with free cards, for other pods
    activation_w: Floats | None = None  # these three with `scoring=energy`
    fragmentation_w: Floats | None = None
    reserve_w: Floats | None = None

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
    """`rows` are the candidates' rows; row 0 stands for a node that the columns do not have."""
    node_terms = node_terms_of(twin_columns, now, view_age_ms, weights)
    return score_with(node_terms, pod, twin_columns, rows, weights)


def score_with(
    node_terms: NodeTerms, pod: PodAsk, twin_columns: TwinColumns, rows: Ints, weights: Weights
) -> Scores:
    if weights.scoring == "energy":
        return _energy_score(pod, twin_columns, rows, node_terms, weights)
    basis = node_terms.basis.take(rows)
    is_measured = is_all_measured(basis)
    terms = _terms(pod, rows, node_terms, basis, is_measured, weights)
    total = terms[0]
    packed = packing(pod, twin_columns, rows, weights.gpu)
    preferred = preference_points(pod, twin_columns, rows, weights.preferences)
    for term in (packed, preferred):
        if term is not None:
            total += term
    np.minimum(np.maximum(total, 0.0, out=total), 100.0, out=total)
    kept = cards_kept(pod, total, twin_columns, rows, basis > NEUTRAL, weights)
    if kept is not None:
        total -= kept
    if not is_measured:
        _cap_neutral(total, basis, weights)
    return Scores(
        answer=truncated(total * (weights.score_range / 100)),
        terms=terms,
        basis=basis,
        cluster=node_terms.cluster,
        packing=packed,
        wishes=preferred,
        cards_kept=kept,
    )


def truncated(scores: Floats) -> Ints:
    """Truncates to integers. The terms of a score of exactly 64 may add up to a float just below
    it, because 0.7 has no exact float. A single addition, so that arrays and single numbers
    agree.
    """
    whole: Ints = (scores + CLOSE).astype(np.int64)
    return whole


def _terms(
    pod: PodAsk, rows: Ints, node_terms: NodeTerms, basis: Ints, is_measured: bool, weights: Weights
) -> Floats:
    """One row per term, in the order of `_TERMS`; the first is the score without optional terms."""
    columns = node_terms.of(rows)
    known = TermColumns(*columns)
    terms = np.empty((len(_TERMS), len(rows)))
    total, headroom, _, trend, bonus, pressure, draining, marginal, assumed = terms
    terms[_AS_KNOWN] = columns[AS_TERMS]
    if pod.workload == "standard":  # a node's class affects standard pods only
        pressure *= weights.pressure * node_terms.cluster.pressure
    else:
        terms[_BY_CLASS] = 0.0
    assumed[:] = known.assumed_w
    marginal[:] = node_terms.marginal_power.of(pod, rows)
    if weights.facility:
        marginal *= known.cost_factor
    headroom[:] = headroom_of(known, basis, assumed + marginal, is_measured)
    np.multiply(headroom, weights.headroom, out=total)
    for more in (known.reserve, trend, bonus):
        total += more
    total -= pressure
    total -= draining
    return terms


def _energy_score(
    pod: PodAsk, twin_columns: TwinColumns, rows: Ints, node_terms: NodeTerms, weights: Weights
) -> Scores:
    basis = node_terms.basis.take(rows)
    known = basis > NEUTRAL
    energy = energy_of(pod, twin_columns, rows, known, weights)
    preferred = preference_points(pod, twin_columns, rows, weights.preferences)
    terms = np.zeros((len(_TERMS), len(rows)))
    terms[_TERMS.index("marginal_w")] = energy.marginal_w
    if pod.workload == "standard":
        terms[_TERMS.index("draining")] = TermColumns(*node_terms.of(rows)).draining
    total = terms[0]
    np.subtract(energy.score, terms[_TERMS.index("draining")], out=total)
    if preferred is not None:
        total += preferred
    np.clip(total, 0.0, 100.0, out=total)
    _cap_neutral(total, basis, weights)
    return Scores(
        answer=truncated(total * (weights.score_range / 100)),
        terms=terms,
        basis=np.where(known, int(ScoreBasis.ENERGY), basis),
        cluster=node_terms.cluster,
        wishes=preferred,
        activation_w=energy.activation_w,
        fragmentation_w=energy.fragmentation_w,
        reserve_w=energy.reserve_w,
    )


def gpu_score(pod: PodAsk, twin_columns: TwinColumns, rows: Ints, weights: Weights) -> Scores:
    """The score of GPU packing alone, 0 to 10, independent of `score_range`."""
    packed = points(pod, twin_columns, rows, weights.gpu)
    preferred = preference_points(pod, twin_columns, rows, weights.preferences)
    of_ten = packed if preferred is None else np.clip(packed + preferred / HIGHEST, 0.0, HIGHEST)
    terms = np.zeros((len(_TERMS), len(rows)))
    terms[0] = of_ten
    return Scores(
        answer=truncated(of_ten),
        terms=terms,
        basis=np.full(len(rows), ScoreBasis.CARDS),
        cluster=NO_CLUSTER_TERMS,
        packing=packed,
        wishes=preferred,
    )


def _cap_neutral(scores: Floats, basis: Ints, weights: Weights) -> None:
    """A node without data never scores best, even if all known nodes score badly."""
    neutral = basis <= NEUTRAL
    if not neutral.any():
        return
    known = scores[~neutral]
    scores[neutral] = min(weights.neutral, float(known.max())) if len(known) else weights.neutral


def terms_digest(scores: Scores) -> bytes:
    """A 32-byte digest of every float of every candidate: equal only if all are bit-identical.

    All terms of a candidate are hashed into one word, and the words are hashed again.
    """
    digest = hashlib.sha256((_MIXERS @ scores.terms.astype("<f8", copy=False).view("<u8")).data)
    for name in _OPTIONAL:
        if (term := getattr(scores, name)) is not None:
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(term, "<f8").data)
    digest.update(scores.basis.astype("<i1").data)
    return digest.digest()


def top_terms(scores: Scores, names: Sequence[str], count: int) -> list[Terms]:
    """All terms of the best candidates."""
    places = best(scores, count)
    figures: list[list[float]] = scores.terms.take(places, axis=1).T.tolist()
    return [_terms_at(scores, names, at, of) for at, of in zip(places, figures, strict=True)]


def terms_of(scores: Scores, names: Sequence[str], at: int) -> Terms:
    return _terms_at(scores, names, at, scores.terms[:, at].tolist())


def _terms_at(scores: Scores, names: Sequence[str], at: int, figures: list[float]) -> Terms:
    values: dict[str, float] = dict(zip(_TERMS, figures, strict=True))
    source = _SOURCES[scores.basis.item(at)]
    energy = _values_at(scores, _ENERGY, at)
    return Terms(
        node=names[at],
        source=source,
        energy=EnergyTerms(**energy) if energy else NO_ENERGY_TERMS,
        **values,
        **_values_at(scores, _POINTS, at),
    )


def _values_at(scores: Scores, terms: Sequence[str], at: int) -> dict[str, float]:
    """The values of those optional terms that the scores have."""
    columns = {name: getattr(scores, name) for name in terms}
    return {name: float(column[at]) for name, column in columns.items() if column is not None}


def best(scores: Scores, count: int) -> list[int]:
    """The places of the highest scores, best first; ties in the order of the request."""
    left, places = scores.score.copy(), list[int]()
    for _ in range(min(count, len(left))):
        places.append(int(left.argmax()))  # of equal ones the first
        left[places[-1]] = -np.inf
    return places
