"""The rooms that nodes stand in: how warm they are, and what cooling costs there. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from joulie_projections.state.state import FacilityState, NodeState
from joulie_projections.twin.cooling import BASELINE_C

ZONE_LABEL = "joulie.io/cooling-zone"
HIGHEST_PUE = 3.0  # beyond it one of the meters is wrong; the worst rooms of today have 2 to 2.5


class Hall(NamedTuple):
    ambient_c: float = BASELINE_C
    pue: float = 1.0
    is_polled: bool = False  # whether the efficiency is the facility's own, and no assumption


DEFAULT_HALL = Hall()


class Halls(NamedTuple):
    """Every facility that was polled, by number. Number 0 is for nodes that name none of them."""

    names: tuple[str, ...] = ()
    halls: tuple[Hall, ...] = (DEFAULT_HALL,)

    def number(self, zone: str) -> int:
        return self.names.index(zone) + 1 if zone in self.names else 0


NO_HALLS = Halls()


def is_polled(node: NodeState, halls: Halls) -> bool:
    """Is the efficiency of the room that it stands in the facility's own?"""
    return halls.halls[halls.number(node.labels.get(ZONE_LABEL, ""))].is_polled


def halls_of(facilities: Mapping[str, FacilityState]) -> Halls:
    """A node is in the facility that its zone label names; where there is only one, in that one."""
    if not facilities:
        return NO_HALLS
    names = tuple(sorted(facilities))
    halls = [hall_of(facilities[name]) for name in names]
    return Halls(names, (halls[0] if len(halls) == 1 else DEFAULT_HALL, *halls))


def hall_of(polled: FacilityState) -> Hall:
    """The last good reading of each kind, however old: a failed poll changes no weather."""
    ambient, it, cooling = polled.ambient_mdeg, polled.it_mw, polled.cooling_mw
    pue = pue_of(it.value, cooling.value) if it and cooling else None
    return Hall(
        ambient_c=ambient.value / 1000 if ambient else BASELINE_C,
        pue=1.0 if pue is None else pue,
        is_polled=pue is not None,
    )


def pue_of(it_mw: int, cooling_mw: int) -> float | None:
    """None where nothing computes: then there is no ratio."""
    return (it_mw + cooling_mw) / it_mw if it_mw > 0 else None


def is_plausible(it_mw: int, cooling_mw: int) -> bool:
    """The ratio is never below 1, because neither reading is negative. Compared as integers: a
    reading at the very limit counts on every machine alike. No ratio is no reason to refuse."""
    return it_mw <= 0 or it_mw + cooling_mw <= HIGHEST_PUE * it_mw
