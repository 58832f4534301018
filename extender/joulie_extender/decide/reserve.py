"""The nodes that a pod is refused for the capacity reserve, from the twins' columns."""

import numpy as np

from joulie_bus.events import PodAsk
from joulie_extender.decide.energy_terms import asks_no_card, free_cards, free_cores
from joulie_projections.twin.arrays import Bools, Ints
from joulie_projections.twin.capacity_reserve import (
    Capacity,
    CapacityReserve,
    Request,
    Totals,
    asks_too_much,
    can_refuse,
    takes_cores_of_cards,
    takes_reserve,
    totals_of,
)
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import cores_of


def applies(pod: PodAsk, reserve: CapacityReserve) -> bool:
    """Whether this pod may be refused nodes for the reserve."""
    return not pod.exempt and can_refuse(reserve, _request(pod))


def too_many_cores(pod: PodAsk, reserve: CapacityReserve) -> bool:
    """Whether the pod is refused every node, however much is free."""
    return asks_too_much(reserve, _request(pod))


def refused(pod: PodAsk, twin_columns: TwinColumns, rows: Ints, reserve: CapacityReserve) -> Bools:
    """The nodes where the pod would take what is kept free."""
    request = _request(pod)
    if takes_reserve(reserve, _totals(twin_columns), request):
        return np.ones(len(rows), np.bool_)
    cores, cards = free_cores(twin_columns, rows), free_cards(twin_columns, rows)
    return takes_cores_of_cards(reserve, cores, cards, request)


def _request(pod: PodAsk) -> Request:
    # An annotation without a number of cards asks for one.
    cards = 0.0 if asks_no_card(pod) else pod.gpu_milli / 1000 or 1.0
    return Request(cores_of(pod), cards, pod.workload == "performance")


def _totals(twin_columns: TwinColumns) -> Totals:
    """Of all nodes that exist; computed once for a set of columns."""
    known = twin_columns.memo.get(_totals)
    if not isinstance(known, Totals):
        rows: Ints = np.flatnonzero(twin_columns.columns["present"])
        known = twin_columns.memo[_totals] = totals_of(
            Capacity(
                free_cores(twin_columns, rows),
                free_cards(twin_columns, rows),
                twin_columns.floats("cores").take(rows),
                twin_columns.floats("gpus").take(rows),
            )
        )
    return known
