"""Reports of energy as API values, read off the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from joulie_answers.readers.requests import requests_now
from joulie_answers.readers.saved import saved_now, saved_of
from joulie_answers.readers.savings import savings_of
from joulie_answers.schema import requests, responses
from joulie_bus.errors import Unreadable
from joulie_projections.energy.grid import Rate
from joulie_projections.energy.intervals import Interval
from joulie_projections.energy.report import (
    MS_PER_HOUR,
    By,
    EnergyReport,
    Share,
    kwh,
    rate_json,
    worth_json,
)
from joulie_projections.state.state import ClusterState
from joulie_projections.store.energy_table import EnergyTable

T = TypeVar("T")
OpenEnergy = Callable[[], AbstractContextManager[EnergyTable]]
LedgerLag = Callable[[], float | None]  # in seconds; None: not known
KINDS: dict[By, tuple[str, ...]] = {
    "node": (),
    "plan": (),
    "pod": ("pod",),
    "card": ("card",),
}  # else groups
MS_PER_SECOND = MW_PER_W = 1000
FINE_MS = 6 * MS_PER_HOUR  # what is known of less is shown by minutes


class Period(NamedTuple):
    from_ms: int
    to_ms: int


class EnergyReader:
    """One report at a time: a long one must not take the threads of other queries."""

    def __init__(self, open_energy: OpenEnergy, behind_s: LedgerLag) -> None:
        self._open_energy, self._behind_s = open_energy, behind_s
        self._thread = ThreadPoolExecutor(1, "energy")
        self._lag_thread = ThreadPoolExecutor(1, "ledger-lag")

    def close(self) -> None:
        self._thread.shutdown()
        self._lag_thread.shutdown()

    async def behind_s(self) -> float | None:
        """How far the ledger is behind the log, which waits for no report. None: not known."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._lag_thread, self._behind_s)

    async def energy(
        self, stamp: responses.Stamp, period: Period, query: requests.Energy
    ) -> responses.Energy:
        """Raises Unreadable if the database fails."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._read, stamp, period, query)

    async def saved(self, stamp: responses.Stamp, now_ms: int) -> responses.Saved:
        """Raises Unreadable if the database fails."""
        return await self._of_one_moment(lambda table: saved_now(table, stamp, now_ms))

    async def workload_requests(
        self,
        stamp: responses.Stamp,
        state: ClusterState,
        now_ms: int,
        query: requests.WorkloadRequests,
    ) -> responses.WorkloadRequestList:
        """Raises Unreadable if the database fails."""
        return await self._of_one_moment(
            lambda table: requests_now(table, stamp, state, now_ms, query)
        )

    async def _of_one_moment(self, answer: Callable[[EnergyTable], T]) -> T:
        def read() -> T:
            with self._open_energy() as opened, opened.at_one_moment() as table:
                return answer(table)

        return await asyncio.get_running_loop().run_in_executor(self._thread, read)

    async def idle_holders(self) -> list[responses.IdleHolder] | None:
        """None if they cannot be read: the cards are shown all the same."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, self._holders)
        except Unreadable:
            return None

    def _holders(self) -> list[responses.IdleHolder]:
        with self._open_energy() as table:
            return [
                responses.IdleHolder(
                    node=each.node,
                    uuid=each.card,
                    pods=list(each.pods),
                    since_ms=each.since_ms,
                    power_w=each.power_mw / MW_PER_W,
                )
                for each in table.holders()
            ]

    def _read(
        self, stamp: responses.Stamp, period: Period, query: requests.Energy
    ) -> responses.Energy:
        kinds = ("node", *KINDS.get(query.by, ("group",)))
        with self._open_energy() as opened, opened.at_one_moment() as table:
            found = table.between(*period, kinds)
            report = found.report(query.by)
            intervals = sorted(found.intervals, key=lambda each: each.start_ms)
            began_ms = _began_ms(table, intervals)
            known = Period(max(report.from_ms, began_ms), min(report.to_ms, period.to_ms))
            fine = _fine(table, intervals, known, began_ms)
            saved = saved_of(table, found)
            savings = table.savings()
        if not found.intervals:
            report = report._replace(by={})
        report = report._replace(from_ms=known.from_ms, to_ms=known.to_ms)
        shares = [
            _share(name, share, has_model=query.by == "card")
            for name, share in list(report.by.items())[query.offset : query.offset + query.limit]
        ]
        answer = _answer(stamp, report, shares, series_of(fine, known), savings_of(savings))
        end = query.offset + len(shares)
        if not found.intervals:
            answer = replace(answer, **dict.fromkeys(NOT_HELD))
        return replace(
            answer,
            by=query.by,
            folded_to=found.position,
            ledger_behind_ms=round(found.behind_s * MS_PER_SECOND),
            saved_in_period=saved,
            next=end if end < len(report.by) else None,
        )


NOT_HELD = (
    *("meter_kwh", "pods_kwh", "idle_kwh", "modelled_kwh", "unknown_kwh", "unknown_node_hours"),
    *("cost", "unpriced_kwh", "kgco2e", "unweighed_kwh"),
)


def _fine(
    table: EnergyTable, found: Sequence[Interval], known: Period, began_ms: int
) -> Sequence[Interval]:
    """By minutes, where the energy that is known of a period is of some hours: with one interval
    for each hour, power is flat where it was not. Within the first minutes of readings it is not
    known when they begin: then their hour is shown as a whole."""
    if not found or known.to_ms - known.from_ms > FINE_MS:
        return found
    first, end_ms = found[0], max(each.end_ms for each in found)
    if first.start_ms < began_ms != table.log_began_ms():
        return [first, *table.by_minutes(first.end_ms, end_ms)]
    return table.by_minutes(first.start_ms, end_ms) or found


def _began_ms(table: EnergyTable, intervals: Sequence[Interval]) -> int:
    """When the readings of the first interval begin; the intervals are in their order. Over the
    whole interval, the average power of a ledger that began within it is too low."""
    if not intervals:
        return 0
    first = intervals[0]
    began_ms = table.log_began_ms()
    if first.start_ms <= began_ms < first.end_ms:
        return began_ms
    return _first_minutes(table, first) if first.grain == "hour" else 0


def _first_minutes(table: EnergyTable, first: Interval) -> int:
    """Of an hour, to five minutes."""
    part_of_hour = (first.start_ms + 1, first.end_ms)  # of a whole one, only the hour is read
    minutes = table.between(*part_of_hour, ("node",)).intervals
    return min((each.start_ms for each in minutes if each.nodes), default=0)


def series_of(intervals: Sequence[Interval], known: Period) -> list[responses.EnergyPoint]:
    """The sums of each interval, oldest first. The first one begins and the running one ends with
    the known period."""
    ordered = sorted(intervals, key=lambda interval: interval.start_ms)
    return [
        responses.EnergyPoint(
            start_ms=max(each.start_ms, known.from_ms),
            end_ms=max(each.start_ms + 1, min(each.end_ms, known.to_ms)),
            pods_kwh=kwh(sum(row.pods_uj for row in each.nodes)),
            idle_kwh=kwh(sum(row.idle_uj for row in each.nodes)),
            modelled_kwh=kwh(sum(row.modelled_uj for row in each.nodes)),
            unknown_kwh=kwh(sum(row.unknown_uj for row in each.nodes)),
        )
        for each in ordered
    ]


def _answer(
    stamp: responses.Stamp,
    report: EnergyReport,
    shares: list[responses.EnergyShare],
    series: list[responses.EnergyPoint],
    savings: responses.Savings | None,
) -> responses.Energy:
    return responses.Energy(
        **stamp,
        by="namespace",
        folded_to=0,
        ledger_behind_ms=0,
        from_ms=report.from_ms,
        to_ms=report.to_ms,
        complete_to_ms=report.complete_to_ms,
        meter_kwh=kwh(report.meter_uj),
        pods_kwh=kwh(report.pods_uj),
        idle_kwh=kwh(report.idle_uj),
        modelled_kwh=kwh(report.modelled_uj),
        unknown_kwh=kwh(report.unknown_uj),
        unknown_node_hours=report.unknown_ms / MS_PER_HOUR,
        currency=report.currency,
        **worth_json(report.worth, report.meter_uj),
        items=shares,
        total=len(report.by),
        next=None,
        grid=list(map(_rate, report.grid)),
        series=series,
        saved=savings,
        saved_in_period=None,
    )


def _share(name: str, share: Share, *, has_model: bool) -> responses.EnergyShare:
    return responses.EnergyShare(
        name=name,
        kwh=kwh(share.energy_uj),
        pods_kwh=kwh(share.pods_uj),
        idle_kwh=kwh(share.idle_uj),
        **worth_json(share.worth, share.energy_uj),
        modelled_kwh=kwh(share.modelled_uj) if has_model else None,
    )


def _rate(rate: Rate) -> responses.GridRate:
    plain = rate_json(rate)
    return responses.GridRate(from_ms=plain.pop("from"), to_ms=plain.pop("to"), **plain)
