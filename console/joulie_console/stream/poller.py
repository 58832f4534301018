"""The cluster as it is now, looked at twice a second: one picture for all who ask in between."""

import asyncio
import time
from collections import deque
from typing import NamedTuple

import msgspec

from joulie_console.schema.responses import Cluster, PowerPoint
from joulie_console.stream.event_tail import Journal
from joulie_console.views.cluster_view import (
    MS,
    Columns,
    Glance,
    Moment,
    changed_rows,
    counted_cards,
    facility_of,
    last_plan,
    phases,
)
from joulie_console.views.health import Signs, warnings_of
from joulie_projections.state.rows import tables_of
from joulie_projections.state.state import ClusterState
from joulie_projections.view.view import View

BEAT_S = 0.5
FIRST_S = 0.05  # who waits for the first picture waits for nothing else
SUMMARY_S = 1.0
POWER_S = 2.0
AGEING_S = 5.0  # readings grow stale although nothing happens
POINTS = 1800  # an hour of the chart
_json = msgspec.json.Encoder().encode


class Step(NamedTuple):
    """What the map shows otherwise than one step before; `number` counts the steps."""

    number: int
    data: bytes


class Pulse:
    def __init__(self, view: View, journal: Journal, cluster: str, staleness_s: float) -> None:
        self._view = view
        self._journal = journal
        self._cluster = cluster
        self._staleness_s = staleness_s
        self._summary_at = self._power_at = self._stepped_at = 0.0
        self._columns: Columns | None = None
        self.glance = Glance(self._moment(), staleness_s)
        self.step = Step(0, b"{}")
        self.summary = b""  # as it is streamed
        self.power: deque[PowerPoint] = deque(maxlen=POINTS)

    @property
    def age_ms(self) -> int:
        return self._view.age_ms

    async def beat(self) -> None:
        """For ever."""
        while True:
            self.look(time.monotonic())
            await asyncio.sleep(BEAT_S if self.step.number else FIRST_S)

    def look(self, now: float) -> None:
        if not self._view.is_ready:
            return
        moved = self._view.position != self.glance.moment.position
        if moved or self._columns is None or now - self._stepped_at >= AGEING_S:
            self._stepped_at = now
            self._take_step()
        if now - self._power_at >= POWER_S:
            self._power_at = now
            self.power.append(self._power_point())
        if now - self._summary_at >= SUMMARY_S:
            self._summary_at = now
            self.summary = _json(self.cluster(self.glance, self.age_ms))
        self._journal.wake()

    def _take_step(self) -> None:
        self.glance = Glance(self._moment(), self._staleness_s)
        before, self._columns = self._columns, self.glance.columns()
        rows = changed_rows(before, self._columns) if before else []
        data = {"position": self.glance.moment.position, "rows": rows}
        self.step = Step(self.step.number + 1, _json(data))

    def _moment(self) -> Moment:
        """Between two awaits; the tables are copied, for the view goes on under our hands."""
        seen, cluster_state = self._view.snapshot(), _copied(self._view.cluster_state)
        return Moment(seen.position, time.time_ns(), seen.age_ms, cluster_state, seen.twin_columns)

    def _power_point(self) -> PowerPoint:
        totals, moment = self.glance.totals(), self.glance.moment
        return PowerPoint(
            at_ms=moment.at // MS,
            position=moment.position,
            measured_w=round(totals.measured_w, 1),
            capped_w=round(totals.capped_w, 1),
        )

    def cluster(self, glance: Glance, age_ms: int, *, is_now: bool = True) -> Cluster:
        moment, totals = glance.moment, glance.totals()
        cluster_state, counted, cards = (
            moment.cluster_state,
            phases(moment.cluster_state),
            counted_cards(moment.cluster_state),
        )
        facility, beat = facility_of(cluster_state), self._view.last_beat if is_now else None
        pending, lag = counted["pending"], beat.lag if beat else 0
        signs = self._signs(glance, age_ms, lag, pending, cards.unhealthy)
        return Cluster(
            position=moment.position,
            at_ms=moment.at // MS,
            age_ms=age_ms,
            cluster=self._cluster,
            nodes=totals.nodes,
            classes=glance.classes(),
            asleep=sum(node.power_state == "asleep" for node in cluster_state.nodes.values()),
            unmeasured=totals.nodes - totals.measured,
            measured_w=totals.measured_w,
            capped_w=totals.capped_w,
            tdp_w=totals.tdp_w,
            trend_w_per_min=totals.trend_w_per_min,
            gpus=int(sum(moment.twin_columns.floats("gpus").tolist())),
            gpus_asked=sum(glance.asked_gpus.tolist()),
            cards=cards.shown,
            cards_unhealthy=cards.unhealthy,
            pods_running=counted["running"],
            pods_pending=pending,
            entries=self._journal.entry,
            planned_at_ms=cluster_state.planned_at // MS,
            plan=last_plan(cluster_state),
            it_w=facility.it_w,
            cooling_w=facility.cooling_w,
            ambient_c=facility.ambient_c,
            lag=beat.lag if beat else None,
            epoch=beat.epoch if beat else None,
            warnings=warnings_of(signs) if is_now else [],
        )

    def _signs(self, glance: Glance, age_ms: int, lag: int, pending: int, unhealthy: int) -> Signs:
        moment, totals, now = glance.moment, glance.totals(), time.time_ns()
        planned, decided = moment.cluster_state.planned_at, self._journal.decided_at
        return Signs(
            age_ms=age_ms,
            lag=lag,
            planned_s=(now - planned) / 1e9 if planned else None,
            nodes=totals.nodes,
            unmeasured=totals.nodes - totals.measured,
            pending=pending,
            decided_s=(now - decided) / 1e9 if decided else None,
            database=self._journal.trouble,
            cards_unhealthy=unhealthy,
        )


def _copied(cluster_state: ClusterState) -> ClusterState:
    """The states are frozen; only the tables are copied."""
    copy = ClusterState()
    for table, states in tables_of(cluster_state).items():
        tables_of(copy)[table].update(states)
    return copy
