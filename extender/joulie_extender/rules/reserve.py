"""Keeps capacity free, and bounds the cores beside a card, as `capacity_reserve` asks for."""

from dataclasses import dataclass

import numpy as np

from joulie_bus.core.setting_fields import preset_number
from joulie_bus.events import PodAsk
from joulie_extender.gpu.free import asks_no_card, free_cards, free_cores
from joulie_extender.rules.rule import PASSED, Codes, Rule, RuleInput, Verdict
from joulie_projections.pods.refusal import REFUSED_FOR_CORES, REFUSED_FOR_RESERVE
from joulie_projections.twin.arrays import Bools, Ints
from joulie_projections.twin.capacity_reserve import (
    Capacity,
    CapacityReserve,
    Request,
    Totals,
    asks_too_much,
    can_refuse,
    capacity_reserve,
    takes_cores_of_cards,
    takes_reserve,
    totals_of,
)
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import cores_of

RESERVED = Verdict(
    REFUSED_FOR_RESERVE,
    "reserve",
    "the pod would take capacity that capacity_reserve keeps free",
)
CORES_PER_CARD = Verdict(
    REFUSED_FOR_CORES,
    "cores per card",
    "the pod asks for more cores per card than capacity_reserve allows",
)
WANTS_RESERVE = "the pod would take capacity that is kept free"
WANTS_FEWER_CORES = "the pod asks for more cores per card than the cluster allows"


@dataclass(frozen=True, kw_only=True)
class ReserveSettings:
    reserve: CapacityReserve = preset_number(
        capacity_reserve,
        "capacity_reserve",
        "",
        "Capacity that the filter keeps free: cards (share) and cores-per-card for class "
        "performance, cores-beside-card and cores (share) for pods without cards",
        "scores",
        table=True,
    )


class CoresPerCard(Rule[ReserveSettings]):
    name = "cores_per_card"
    summary = "A pod of class performance requests at most so many cores per card, on any node"
    settings = ReserveSettings
    is_about_the_pod = True
    advice = (
        (
            CORES_PER_CARD,
            "Lower the pod's CPU request, or raise cores-per-card of capacity_reserve.",
        ),
    )

    def is_for(self, pod: PodAsk) -> bool:
        return not pod.exempt

    def applies(self, asked: RuleInput, settings: ReserveSettings) -> bool:
        return (
            self.is_for(asked.pod)
            and _can_refuse(asked.pod, settings.reserve)
            and asks_too_much(settings.reserve, _request(asked.pod))
        )

    def verdicts(self, asked: RuleInput, _: ReserveSettings) -> Codes:
        return np.full(len(asked.rows), CORES_PER_CARD, np.uint8)

    def reason(self, _: PodAsk, __: ReserveSettings) -> str:
        return WANTS_FEWER_CORES


class Reserve(Rule[ReserveSettings]):
    name = "reserve"
    summary = "A pod gets no node where it would take capacity that is kept free"
    settings = ReserveSettings
    advice = (
        (
            RESERVED,
            "It passes when pods end or nodes are added. capacity_reserve says what is kept free.",
        ),
    )

    def is_for(self, pod: PodAsk) -> bool:
        return not pod.exempt

    def applies(self, asked: RuleInput, settings: ReserveSettings) -> bool:
        return self.is_for(asked.pod) and _can_refuse(asked.pod, settings.reserve)

    def verdicts(self, asked: RuleInput, settings: ReserveSettings) -> Codes:
        kept = _takes_reserve(asked, settings.reserve)
        return np.where(kept, np.uint8(RESERVED), np.uint8(PASSED))

    def reason(self, _: PodAsk, __: ReserveSettings) -> str:
        return WANTS_RESERVE


def _can_refuse(pod: PodAsk, reserve: CapacityReserve) -> bool:
    return any(reserve) and can_refuse(reserve, _request(pod))


def _takes_reserve(asked: RuleInput, reserve: CapacityReserve) -> Bools:
    """The nodes where the pod would take what is kept free."""
    request, columns, rows = _request(asked.pod), asked.twin_columns, asked.rows
    if takes_reserve(reserve, _totals(columns), request):
        return np.ones(len(rows), np.bool_)
    return takes_cores_of_cards(
        reserve, free_cores(columns, rows), free_cards(columns, rows), request
    )


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
