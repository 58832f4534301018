"""Halls: the temperature and the power usage effectiveness (PUE) around nodes."""

from collections.abc import Mapping
from typing import NamedTuple

from joulie_projections.state.state import FacilityState, NodeState
from joulie_projections.twin.cooling import BASELINE_C

ZONE_LABEL = "joulie.io/cooling-zone"
HIGHEST_PUE = 3.0  # a higher value means a wrong meter; inefficient halls have 2 to 2.5


class Hall(NamedTuple):
    ambient_c: float = BASELINE_C
    pue: float = 1.0
    is_polled: bool = False  # whether the PUE was measured, not assumed


DEFAULT_HALL = Hall()


class Halls(NamedTuple):
    """All polled facilities by number. Number 0 is for nodes that name none of them."""

    names: tuple[str, ...] = ()
    halls: tuple[Hall, ...] = (DEFAULT_HALL,)

    def number(self, zone: str) -> int:
        return self.names.index(zone) + 1 if zone in self.names else 0


NO_HALLS = Halls()


def is_polled(node: NodeState, halls: Halls) -> bool:
    """Reports whether the PUE of the node's hall was measured."""
    return halls.halls[halls.number(node.labels.get(ZONE_LABEL, ""))].is_polled


def halls_of(facilities: Mapping[str, FacilityState]) -> Halls:
    """The halls of all facilities. With a single facility, every node is in its hall."""
    if not facilities:
        return NO_HALLS
    names = tuple(sorted(facilities))
    halls = [hall_of(facilities[name]) for name in names]
    return Halls(names, (halls[0] if len(halls) == 1 else DEFAULT_HALL, *halls))


def hall_of(polled: FacilityState) -> Hall:
    """The hall by the last valid reading of each kind, regardless of age."""
    ambient, it, cooling = polled.ambient_mdeg, polled.it_mw, polled.cooling_mw
    pue = pue_of(it.value, cooling.value) if it and cooling else None
    return Hall(
        ambient_c=ambient.value / 1000 if ambient else BASELINE_C,
        pue=1.0 if pue is None else pue,
        is_polled=pue is not None,
    )


def pue_of(it_mw: int, cooling_mw: int) -> float | None:
    """The PUE; None without IT power."""
    return (it_mw + cooling_mw) / it_mw if it_mw > 0 else None


def is_plausible(it_mw: int, cooling_mw: int) -> bool:
    """Reports whether the PUE is at most HIGHEST_PUE, or undefined. It is at least 1, because
    readings are not negative."""
    return it_mw <= 0 or it_mw + cooling_mw <= HIGHEST_PUE * it_mw
