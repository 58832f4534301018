"""The terms of a score, and the formulas that add them up."""

from collections.abc import Callable, Mapping
from typing import Any

from joulie_bus.events import Terms, named_values
from joulie_extender.catalogue.weights import Weights
from joulie_extender.gpu.fit import HIGHEST
from joulie_extender.terms.cards_kept import CardsKept
from joulie_extender.terms.class_points import Bonus, Draining, Pressure
from joulie_extender.terms.cooling import Cooling
from joulie_extender.terms.energy import (
    Activation,
    CardReserve,
    EnergyAdded,
    FirstCard,
    FirstProcess,
    Fragmentation,
    LostGpusWatts,
    score_by_watts,
)
from joulie_extender.terms.freshness import SOURCES, WITHOUT_DATA, ScoreBasis
from joulie_extender.terms.gang import Gang, GangOfTen
from joulie_extender.terms.headroom import Headroom
from joulie_extender.terms.over_cap import OverCap
from joulie_extender.terms.packing import Devices, LostGpus, LostGpusAlone, Packing, PackingAlone
from joulie_extender.terms.power import AddedPower, AssumedPower
from joulie_extender.terms.preferences import Wishes, WishesOfTen
from joulie_extender.terms.term import NodeColumn, Term, TermInput
from joulie_extender.terms.trend import Trend
from joulie_projections.twin.arrays import Floats


class Formula:
    """Terms in the order in which they are added up, and in which the digest has them."""

    def __init__(
        self,
        *terms: Term[Any],
        highest: float = 100.0,
        start: Callable[[TermInput, Any], Floats] | None = None,
        start_name: str = "",
    ) -> None:
        self.terms = terms
        self.highest = highest
        self.start = start  # the score before terms are added
        self.start_name = start_name  # of its points, which are no term of an entry
        self.inputs = [term for term in terms if not term.is_summand]
        self.last = [term for term in terms if term.is_last]
        self.summands = [
            term for term in terms if term.is_summand and not (term.is_after_clamp or term.is_last)
        ]
        self.after_clamp = [term for term in terms if term.is_after_clamp]

    @property
    def added(self) -> list[Term[Any]]:
        return [*self.summands, *self.after_clamp, *self.last]

    def point_names(self) -> list[str]:
        names = [term.name for term in self.added]
        return [*names, self.start_name] if self.start else names

    @property
    def columns(self) -> list[Term[Any]]:
        """The columns of `joulie explain`; the watts first if the score follows from them."""
        order = [*self.inputs, *self.added] if self.start else [*self.added, *self.inputs]
        return [term for term in order if term.head]


HEADROOM = Formula(
    Headroom(),
    Cooling(),
    Trend(),
    Bonus(),
    Pressure(),
    Draining(),
    AddedPower(),
    AssumedPower(),
    LostGpus(),
    Packing(),
    Wishes(),
    CardsKept(),
    Devices(),
    Gang(),
)
ENERGY = Formula(
    Draining(),
    EnergyAdded(),
    Wishes(),
    Activation(),
    Fragmentation(),
    LostGpusWatts(),
    CardReserve(),
    FirstProcess(),
    FirstCard(),
    OverCap(),
    Gang(),
    start=score_by_watts,
    start_name="watts",
)
CARDS = Formula(LostGpusAlone(), PackingAlone(), WishesOfTen(), GangOfTen(), highest=HIGHEST)
FORMULAS: Mapping[str, Formula] = {"headroom": HEADROOM, "energy": ENERGY, "cards": CARDS}
TERMS: tuple[Term[Any], ...] = tuple(term for each in FORMULAS.values() for term in each.terms)

# The digest has these of every candidate, 0 where they do not apply, behind the score itself. All
# others are in it by name, where they apply: so a new term leaves the digests of old entries alone.
FIRST = (
    "headroom",
    "cooling",
    "trend",
    "bonus",
    "pressure",
    "draining",
    "marginal_w",
    "assumed_w",
)
NODE_COLUMNS: Mapping[str, NodeColumn] = dict(column for term in TERMS for column in term.columns)
NEUTRAL = "neutral"  # the points of a node without data, which are no term of an entry
_FORMULA_OF: Mapping[str, Formula] = {
    SOURCES[ScoreBasis.PREDICTED]: HEADROOM,
    SOURCES[ScoreBasis.MEASURED]: HEADROOM,
    SOURCES[ScoreBasis.CARDS]: CARDS,
    SOURCES[ScoreBasis.ENERGY]: ENERGY,
}
_HEADS = {term.name: term.head.strip() for term in TERMS if term.head}


def formula_of(source: str) -> Formula | None:
    """By the source of an entry's terms. None for a node without data, which no formula scored, and
    for a source that this code does not know."""
    return _FORMULA_OF.get(source)


def is_without_data(source: str) -> bool:
    """Whether the node got the neutral score."""
    return source in WITHOUT_DATA


def is_known(source: str) -> bool:
    """False for a source that only newer code knows: what its terms add to a score is unknown."""
    return is_without_data(source) or formula_of(source) is not None


def points_of(terms: Terms, weights: Weights) -> dict[str, float]:
    """What each term adds to the score; the sum is the score before it is clamped. Empty for a
    source that this code does not know."""
    formula, values = formula_of(terms.source), named_values(terms)
    if is_without_data(terms.source):
        return _neutral_points(terms, values, weights)
    if formula is None:
        return {}
    points = {
        term.name: term.points(values.get(term.name, 0.0), weights)
        for term in formula.added
        if term.name in FIRST or values.get(term.name)
    }
    if formula.start is None:
        return points
    return {formula.start_name: terms.score - sum(points.values()), **points}


def _neutral_points(
    terms: Terms, values: Mapping[str, float], weights: Weights
) -> dict[str, float]:
    """Only the terms that change a finished score apply to a node without data."""
    last = {
        term.name: term.points(values[term.name], weights)
        for term in HEADROOM.last
        if values.get(term.name)
    }
    return {NEUTRAL: terms.score - sum(last.values()), **last}


def applying_values(terms: Terms) -> dict[str, float]:
    """The recorded terms that the score rests on: entries have 0 for all others. Terms and sources
    that this code does not know are as recorded."""
    values, formula = named_values(terms), formula_of(terms.source)
    del values["score"]
    if formula is None and not is_without_data(terms.source):
        return values
    applying = {term.name for term in (formula.terms if formula else HEADROOM.last)}
    known = {term.name for term in TERMS}
    return {name: value for name, value in values.items() if name in applying or name not in known}


def watts_of(terms: Terms) -> dict[str, float]:
    """The watts that the score follows from, by the name of their term without its unit. Empty
    where no watts are known: for a node without data."""
    values, formula = named_values(terms), formula_of(terms.source)
    names = (term.name for term in formula.inputs) if formula else ()
    return {name.removesuffix("_w"): values.get(name, 0.0) for name in names}


def point_names() -> list[str]:
    """Every name that points have, in the order of the sums."""
    named = [name for formula in (HEADROOM, ENERGY) for name in formula.point_names()]
    return [*dict.fromkeys(named), NEUTRAL]


def head_of(name: str) -> str:
    """The words for a term, or for watts by their name without a unit."""
    return _HEADS.get(name) or _HEADS.get(f"{name}_w") or name.replace("_", " ")
