"""The intervals of the ledger as columns of tables."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from joulie_audit.columns.tables import Columns
from joulie_audit.sql.views import CARD_ENERGY, ENERGY, POD_ENERGY
from joulie_projections.energy.intervals import Interval
from joulie_projections.energy.report import kwh

KINDS_OF_ROWS = ("node", "pod", "card")
Row = tuple[Any, ...]


def energy_tables(intervals: Iterable[Interval]) -> Mapping[str, Columns]:
    kept = list(intervals)
    return {
        ENERGY.name: ENERGY.filled(_nodes(kept)),
        POD_ENERGY.name: POD_ENERGY.filled(_pods(kept)),
        CARD_ENERGY.name: CARD_ENERGY.filled(_cards(kept)),
    }


def _times(interval: Interval) -> Row:
    return interval.grain, interval.start_ms, interval.end_ms


def _nodes(intervals: Iterable[Interval]) -> Iterator[Row]:
    for each in intervals:
        for row in each.nodes:
            amounts = (row.pods_uj, row.idle_uj, row.modelled_uj, row.unknown_uj)
            yield (*_times(each), row.node, row.plan or None, *map(kwh, amounts))


def _pods(intervals: Iterable[Interval]) -> Iterator[Row]:
    for each in intervals:
        for row in each.pods:
            whose = (row.uid, row.namespace, row.name, row.workload, row.node)
            yield (*_times(each), *whose, kwh(row.pods_uj), kwh(row.idle_uj))


def _cards(intervals: Iterable[Interval]) -> Iterator[Row]:
    for each in intervals:
        for row in each.cards:
            amounts = (row.pods_uj, row.idle_uj, row.modelled_uj)
            yield (*_times(each), row.node, row.card, *map(kwh, amounts))
