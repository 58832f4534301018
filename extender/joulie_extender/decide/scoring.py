"""The score of each candidate for a pod, with every term, by the formulas of the catalogue.

    projected = measured + assumed + marginal
    headroom  = (capped - projected) / capped x 100
    score     = 0.7 headroom + 0.15 (100 - cooling) + trend + bonus - pressure - draining

`assumed` is the power of pods that the reading does not include yet; without a reading, of all
pods. A node without fresh data gets the neutral score, or the score of the best known candidate if
that is lower: it is never preferred and never refused.

With `scoring=energy` the score follows from the watts that the pod adds; see `energy_score`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from joulie_bus.events import NodesInFlight, PodAsk, Terms, named_terms
from joulie_extender.catalogue.terms import CARDS, ENERGY, FIRST, HEADROOM, Formula
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.node_terms import node_terms_of
from joulie_extender.gpu.fit import FRAGMENTATION, HIGHEST
from joulie_extender.terms.freshness import NEUTRAL, SOURCES, ScoreBasis
from joulie_extender.terms.term import ClusterTerms, NodeTerms, Term, TermInput
from joulie_projections.twin.arrays import Floats, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.in_flight import TwinsInFlight

_ROWS = ("score", *FIRST)
_ROW_OF = {name: row for row, name in enumerate(_ROWS)}
# Odd factors: changing any value changes the sum of the products, and mixes its upper bits well.
_MIXERS = np.array(
    [pow(0x9E3779B97F4A7C15, power + 1, 2**64) for power in range(len(_ROWS))], np.uint64
)
ROUNDING = 1e-9  # how far below an integer a score may be and still be that integer


class Scores(msgspec.Struct, frozen=True):
    """One value per candidate in each column."""

    answer: Ints  # the scores in the reply
    terms: Floats  # a row for each, in the order of `_ROWS`
    basis: Ints
    cluster: ClusterTerms | None  # where a term reads them
    more: Mapping[str, Floats]  # the other terms that apply
    chosen: int | None = None  # the one with the highest answer, if there is only one

    @property
    def score(self) -> Floats:
        return self["score"]

    def __getitem__(self, name: str) -> Floats:
        found: Floats = self.terms[_ROW_OF[name]] if name in _ROW_OF else self.more[name]
        return found


def score(  # noqa: PLR0913
    pod: PodAsk,
    twin_columns: TwinColumns,
    rows: Ints,
    now: int,
    view_age_ms: int,
    weights: Weights,
    in_flight: NodesInFlight | None = None,
) -> Scores:
    """`rows` are the candidates' rows; row 0 stands for a node that the columns do not have."""
    node_terms = node_terms_of(twin_columns, now, view_age_ms, weights)
    if not in_flight:
        return score_with(node_terms, pod, twin_columns, rows, weights)
    twins = TwinsInFlight(twin_columns, in_flight)
    asked = TermInput(pod, twins.columns(), rows, node_terms)
    asked.column("assumed_w")[:] += twins.watts(rows, weights.coefficients)
    return _scored(asked, weights)


def score_with(
    node_terms: NodeTerms, pod: PodAsk, twin_columns: TwinColumns, rows: Ints, weights: Weights
) -> Scores:
    return _scored(TermInput(pod, twin_columns, rows, node_terms), weights)


def _scored(asked: TermInput, weights: Weights) -> Scores:
    formula = ENERGY if weights.scoring == "energy" else HEADROOM
    terms, more = _summed(formula, asked, weights)
    if not asked.is_measured:
        _cap_neutral(asked.total, asked.basis, weights)
    more = _finish(formula, asked, weights, more)
    basis = asked.basis
    if formula is ENERGY:
        basis = np.where(basis > NEUTRAL, int(ScoreBasis.ENERGY), basis)
    answer = truncated(asked.total * (weights.score_range / 100))
    cluster = asked.cluster if formula is HEADROOM else None
    return Scores(answer, terms, basis, cluster, more)


def gpu_score(
    pod: PodAsk,
    twin_columns: TwinColumns,
    rows: Ints,
    weights: Weights,
    in_flight: NodesInFlight | None = None,
) -> Scores:
    """The score of GPU packing alone, independent of energy: 0 to 10 independent of `score_range`,
    or up to `score_range` where packing follows what pods ask for, whose differences are small."""
    if in_flight:
        twin_columns = TwinsInFlight(twin_columns, in_flight).columns()
    asked = TermInput(pod, twin_columns, rows)
    terms, more = _summed(CARDS, asked, weights)
    more = _finish(CARDS, asked, weights, more)
    basis = np.full(len(rows), ScoreBasis.CARDS)
    scale = weights.score_range / HIGHEST if weights.gpu.packing == FRAGMENTATION else 1.0
    return Scores(truncated(asked.total * scale), terms, basis, None, more)


def _summed(
    formula: Formula, asked: TermInput, weights: Weights
) -> tuple[Floats, Mapping[str, Floats]]:
    """The table of the first terms, whose first row is the score, and all other terms."""
    table = np.zeros((len(_ROWS), len(asked.rows)))
    total = asked.total = table[0]
    if formula.start is not None:
        total[:] = formula.start(asked, weights)
    more = dict[str, Floats]()
    for term in formula.inputs:
        _add(term, asked, weights, table, more)
    for term in formula.summands:
        _add(term, asked, weights, table, more)
    np.minimum(np.maximum(total, 0.0, out=total), formula.highest, out=total)
    for term in formula.after_clamp:
        _add(term, asked, weights, table, more)
    return table, {term.name: more[term.name] for term in formula.terms if term.name in more}


def _add(
    term: Term[Any], asked: TermInput, weights: Weights, table: Floats, more: dict[str, Floats]
) -> None:
    value = term.value(asked, weights)
    if value is None:
        return
    row = _ROW_OF.get(term.name)
    if row is None:
        more[term.name] = value
    else:
        table[row] = value
    if term.is_summand:
        asked.total += term.points(value, weights)
    else:
        asked.values[term.name] = value


def truncated(scores: Floats) -> Ints:
    """Truncates to integers. The terms of a score of exactly 64 may add up to a float just below
    it, because 0.7 has no exact float. A single addition, so that arrays and single numbers
    agree.
    """
    whole: Ints = (scores + ROUNDING).astype(np.int64)
    return whole


def _cap_neutral(scores: Floats, basis: Ints, weights: Weights) -> None:
    """A node without data never scores best, even if all known nodes score badly."""
    neutral = basis <= NEUTRAL
    if not neutral.any():
        return
    known = scores[~neutral]
    scores[neutral] = min(weights.neutral, float(known.max())) if len(known) else weights.neutral


def _finish(
    formula: Formula, asked: TermInput, weights: Weights, more: Mapping[str, Floats]
) -> Mapping[str, Floats]:
    """The terms that change a finished score; a node without data does not become the best."""
    found = dict(more)
    for term in formula.last:
        value = term.value(asked, weights)
        if value is not None:
            found[term.name] = value
            asked.total += term.points(value, weights)
    if len(found) > len(more) and not asked.is_measured:
        _below_known(asked.total, asked.basis)
    return found


def _below_known(scores: Floats, basis: Ints) -> None:
    neutral = basis <= NEUTRAL
    known = scores[~neutral]
    if len(known):
        scores[neutral] = np.minimum(scores[neutral], known.max())


def with_one_best(scores: Scores, rows: Ints, uid: str) -> Scores:
    """Among equally good nodes, a hash of the pod chooses the one whose answer is the highest: the
    next score can then tell where the pod goes, which kube-scheduler would leave to chance.
    """
    if not len(rows):
        return scores
    among = np.flatnonzero(scores.basis > NEUTRAL)
    among = among if len(among) else np.arange(len(rows))
    equal = _highest(scores.score, _highest(scores.answer, among))
    place = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8]) % len(equal)
    chosen = equal[np.argsort(rows[equal], kind="stable")[place]]
    answer = np.minimum(scores.answer, max(int(scores.answer[chosen]) - 1, 0))
    answer[chosen] = max(int(scores.answer[chosen]), 1)
    return msgspec.structs.replace(scores, answer=answer, chosen=int(chosen))


def _highest(values: Floats | Ints, among: Ints) -> Ints:
    """The places with the highest value."""
    found = values[among]
    highest: Ints = among[found == found.max()]
    return highest


def terms_digest(scores: Scores) -> bytes:
    """A 32-byte digest of every float of every candidate: equal only if all are bit-identical.

    The first terms of a candidate are hashed into one word, and the words are hashed again; the
    others are hashed with their names.
    """
    digest = hashlib.sha256((_MIXERS @ scores.terms.astype("<f8", copy=False).view("<u8")).data)
    for name, term in scores.more.items():
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
    first: dict[str, float] = dict(zip(_ROWS, figures, strict=True))
    more = {name: float(column[at]) for name, column in scores.more.items()}
    return named_terms(names[at], SOURCES[scores.basis.item(at)], first, more)


def best(scores: Scores, count: int) -> list[int]:
    """The places of the highest scores, best first; ties in the order of the request, after the
    one that was chosen.
    """
    left, places = scores.score.copy(), list[int]()
    if scores.chosen is not None:
        left[scores.chosen] = np.inf
    for _ in range(min(count, len(left))):
        places.append(int(left.argmax()))  # of equal ones the first
        left[places[-1]] = -np.inf
    return places
