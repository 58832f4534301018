"""Points for the class of a node; they affect pods of class standard only."""

import math
from dataclasses import dataclass

import numpy as np

from joulie_bus.events import PodAsk
from joulie_extender.terms.freshness import MEASURED, NEUTRAL
from joulie_extender.terms.headroom import headroom_of
from joulie_extender.terms.term import Amount, Nodes, Term, TermInput
from joulie_projections.twin.arrays import Bools, Floats
from joulie_projections.twin.twin import NodeClass


@dataclass(frozen=True, kw_only=True)
class ClassPointsSettings:
    eco_bonus: float = 10.0  # for a standard pod on an eco node
    pressure: float = 0.3  # the weight of the pressure on performance nodes, for standard pods
    draining_penalty: float = 20.0  # for a standard pod on a node that is about to be capped


def _is_standard(pod: PodAsk) -> bool:
    return pod.workload == "standard"


def _is_of(nodes: Nodes, node_class: NodeClass) -> Bools:
    found: Bools = nodes.twin_columns.columns["node_class"] == node_class
    return found


def _bonus(nodes: Nodes, settings: ClassPointsSettings) -> Floats:
    return np.where(_is_of(nodes, NodeClass.ECO), settings.eco_bonus, 0.0)


def _pressed(nodes: Nodes, _: ClassPointsSettings) -> Floats:
    """1 where the cluster's pressure applies."""
    return np.where(_is_of(nodes, NodeClass.PERFORMANCE), 1.0, 0.0)


def _draining(nodes: Nodes, settings: ClassPointsSettings) -> Floats:
    return np.where(_is_of(nodes, NodeClass.DRAINING), settings.draining_penalty, 0.0)


def cluster_pressure(nodes: Nodes) -> float:
    """The mean use of the performance nodes in percent, rounded once, so that their order does not
    count.
    """
    where = np.flatnonzero((nodes.column("pressure") > 0) & (nodes.basis > NEUTRAL))

    def column(name: str) -> Floats:
        found: Floats = nodes.column(name).take(where)
        return found

    basis = nodes.basis.take(where)
    is_measured = int(basis.min(initial=MEASURED)) == MEASURED
    pressing = 100 - headroom_of(column, basis, column("assumed_w"), is_measured)
    pressure = math.fsum(pressing.tolist()) / len(pressing) if len(pressing) else 0.0
    return min(100.0, max(0.0, pressure))


class Bonus(Term[ClassPointsSettings]):
    name = "bonus"
    head = " bonus"
    meaning = "Points for a standard pod on an eco node"
    settings = ClassPointsSettings
    columns = (("bonus", _bonus),)

    def value(self, asked: TermInput, _: ClassPointsSettings) -> Floats | None:
        return asked.column("bonus") if _is_standard(asked.pod) else None


class Pressure(Term[ClassPointsSettings]):
    name = "pressure"
    head = "pressure"
    meaning = "Points against a standard pod on a performance node, by how full those nodes are"
    settings = ClassPointsSettings
    columns = (("pressure", _pressed),)

    def value(self, asked: TermInput, settings: ClassPointsSettings) -> Floats | None:
        if not _is_standard(asked.pod):
            return None
        return asked.column("pressure") * (settings.pressure * asked.cluster.pressure)

    def points(self, value: Amount, _: ClassPointsSettings) -> Amount:
        return -value


class Draining(Term[ClassPointsSettings]):
    name = "draining"
    head = "draining"
    meaning = "Points against a standard pod on a draining node"
    settings = ClassPointsSettings
    columns = (("draining", _draining),)

    def value(self, asked: TermInput, _: ClassPointsSettings) -> Floats | None:
        return asked.column("draining") if _is_standard(asked.pod) else None

    def points(self, value: Amount, _: ClassPointsSettings) -> Amount:
        return -value
