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
from joulie_extender.terms.freshness import SOURCES, ScoreBasis
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
_NEUTRAL = [SOURCES[ScoreBasis.NEUTRAL], SOURCES[ScoreBasis.UNDISCOVERED]]


def formula_of(source: str) -> Formula:
    """By the source of an entry's terms."""
    return FORMULAS.get(source, HEADROOM)


def points_of(terms: Terms, weights: Weights) -> dict[str, float]:
    """What each term adds to the score; the sum is the score before it is clamped."""
    if terms.source in _NEUTRAL:
        return {"neutral": terms.score}
    formula, values = formula_of(terms.source), named_values(terms)
    points = {
        term.name: term.points(values.get(term.name, 0.0), weights)
        for term in formula.added
        if term.name in FIRST or values.get(term.name)
    }
    if formula.start is None:
        return points
    return {formula.start_name: terms.score - sum(points.values()), **points}


def watts_of(terms: Terms) -> dict[str, float]:
    """The watts that the score follows from, by the name of their term without its unit."""
    values = named_values(terms)
    names = (term.name for term in formula_of(terms.source).inputs)
    return {name.removesuffix("_w"): values.get(name, 0.0) for name in names}


def point_names() -> list[str]:
    """Every name that points have, in the order of the sums."""
    named = [name for formula in (HEADROOM, ENERGY) for name in formula.point_names()]
    return [*dict.fromkeys(named), "neutral"]
