"""The headroom: the share of its cap that a node keeps free beside the pod."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from joulie_extender.terms.freshness import NEUTRAL, ScoreBasis
from joulie_extender.terms.term import Amount, Nodes, Term, TermInput
from joulie_projections.twin.arrays import Floats, Ints


@dataclass(frozen=True, kw_only=True)
class HeadroomSettings:
    headroom: float = 0.7  # the weight of the headroom


def _measured_w(nodes: Nodes, _: object) -> Floats:
    """0 where the headroom uses no reading."""
    return np.where(
        nodes.basis == ScoreBasis.MEASURED, nodes.twin_columns.floats("measured_w"), 0.0
    )


def _capped_w(nodes: Nodes, _: object) -> Floats:
    return nodes.twin_columns.floats("capped_w")


def _whole_w(nodes: Nodes, _: object) -> Floats:
    """The denominator of the headroom: never 0."""
    capped = nodes.twin_columns.floats("capped_w")
    return np.where(capped > 0, capped, 1.0)


def _rated_w(nodes: Nodes, _: object) -> Floats:
    return nodes.twin_columns.floats("tdp_w")


class Headroom(Term[HeadroomSettings]):
    name = "headroom"
    head = "headroom"
    unit = "percent"
    meaning = "The share of its cap that the node keeps free beside its pods and this one"
    settings = HeadroomSettings
    columns = (
        ("measured_w", _measured_w),
        ("capped_w", _capped_w),
        ("whole_w", _whole_w),
        ("rated_w", _rated_w),
    )

    def value(self, asked: TermInput, _: HeadroomSettings) -> Floats:
        more = asked.values["assumed_w"] + asked.values["marginal_w"]
        return headroom_of(asked.column, asked.basis, more, asked.is_measured)

    def points(self, value: Amount, settings: HeadroomSettings) -> Amount:
        return settings.headroom * value


def headroom_of(
    column: Callable[[str], Floats], basis: Ints, more: Floats, is_measured: bool
) -> Floats:
    """The percentage of the cap that is left: 100 if the node and its pods draw nothing. Without a
    reading all pods count with their modeled power, and cooling stress reduces the result: an
    estimate never exceeds what the caps allow.
    """
    capped = column("capped_w")
    room = column("measured_w") + more
    np.subtract(capped, room, out=room)
    room /= column("whole_w")
    room *= 100
    if is_measured:
        return room
    rated = column("rated_w")
    predicted = column("predicted") - more / np.where(rated > 0, rated, 1.0) * 100
    lesser = np.where(capped > 0, np.minimum(predicted, room), predicted)
    room = np.where(basis == ScoreBasis.PREDICTED, lesser, room)
    return np.where(basis <= NEUTRAL, 0.0, room)
