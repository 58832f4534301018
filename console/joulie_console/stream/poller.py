"""Polls the view twice a second while the stream has clients.

All queries between two polls share one snapshot. Without clients, a query takes a snapshot if the
last one is older than half a second, and only the points of the power chart are polled. Half a
minute after the last query the view is paused, and resumed for a point each minute.
"""

import asyncio
import contextlib
import time
from collections import deque
from typing import Any, NamedTuple

import msgspec

from joulie_answers.schema.responses import Cluster, Health, MapChanges, PowerPoint
from joulie_answers.text.health import health_of
from joulie_answers.views.cards import count_cards
from joulie_answers.views.cluster_view import (
    ClusterSnapshot,
    MapState,
    Overview,
    facility_of,
    last_plan,
    map_changes,
    map_state,
    phases,
)
from joulie_bus.core.times import MS
from joulie_bus.errors import ViewBehind
from joulie_console.stream.event_tail import EventTail
from joulie_console.stream.spools import Spools
from joulie_console.views.health import GONE_MS, HealthInputs, interval_s_of, warnings_of
from joulie_projections.state.completeness import ViewAges, known_ms
from joulie_projections.state.rows import tables_of
from joulie_projections.state.state import ClusterState
from joulie_projections.view.view import View, behind_ms_of

POLL_S = 0.5
FIRST_POLL_S = 0.05  # until the first snapshot exists
SUMMARY_S = 1.0
POWER_S = 2.0
REFRESH_S = 5.0  # readings become stale even if nothing changes
POINTS = 1800  # an hour of the chart
IDLE_S = 30.0  # without clients and queries, then the view is paused
IDLE_POWER_S = 60.0  # between two points while it is
RESUME_S = 2.0  # then a query is answered with old rows; its age tells
# What is known of now only.
OF_THE_PAST: dict[str, Any] = {
    "spooled": None,
    "lag": None,
    "epoch": None,
    "warnings": [],
    "health": None,
}
_json = msgspec.json.Encoder().encode


class MapDelta(NamedTuple):
    """The changes of the map since the previous delta; `number` counts the deltas."""

    number: int
    data: bytes


class ClusterPoller:
    def __init__(self, view: View, tail: EventTail, cluster: str, staleness_s: float) -> None:
        self.live_view = view
        self.spools = Spools()
        self._tail = tail
        self._cluster = cluster
        self._staleness_s = staleness_s
        self._summary_at = self._power_at = self._updated_at = self._looked_at = 0.0
        self._queried_at = time.monotonic()
        self._map: MapState | None = None
        self._seen = view.snapshot()
        self._overview = Overview(self._take_snapshot(), staleness_s)
        self.delta = MapDelta(0, b"{}")
        self.summary = b""  # the encoded `cluster` event
        self.power: deque[PowerPoint] = deque(maxlen=POINTS)

    @property
    def ages(self) -> ViewAges:
        """The present ages of `overview`."""
        return self.live_view.ages_of(self._seen)

    @property
    def overview(self) -> Overview:
        self.refresh(time.monotonic())
        return self._overview

    def refresh(self, now: float) -> None:
        """Brings delta, summary and overview up to date if polling does not."""
        if not self._tail.has_clients and now - self._looked_at >= POLL_S:
            self._look(now)

    async def attend(self) -> None:
        """Brings the view up to date for a query, and keeps it so for half a minute."""
        self._queried_at = time.monotonic()
        with contextlib.suppress(ViewBehind):
            await self.live_view.resume(RESUME_S)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await self.poll(time.monotonic())
            await asyncio.sleep(POLL_S if self.delta.number else FIRST_POLL_S)

    async def poll(self, now: float) -> None:
        if not self.live_view.is_ready:
            return
        if self._tail.has_clients or not self.delta.number:
            self._queried_at = now
            self._look(now)
        if now - self._power_at >= (IDLE_POWER_S if self._is_idle(now) else POWER_S):
            await self._add_power_point(now)
        if self._is_idle(now):  # still: no query came meanwhile
            self.live_view.pause()

    def _is_idle(self, now: float) -> bool:
        return now - self._queried_at >= IDLE_S

    def _look(self, now: float) -> None:
        if not self.live_view.is_ready:
            return
        self._looked_at = now
        moved = self.live_view.position != self._overview.snapshot.position
        if moved or self._map is None or now - self._updated_at >= REFRESH_S:
            self._updated_at = now
            self._update()
        if now - self._summary_at >= SUMMARY_S:
            self._summary_at = now
            self.summary = _json(self.cluster(self._overview, self.ages))
        self._tail.wake()

    def _update(self) -> None:
        self._seen = self.live_view.snapshot()
        self._overview = Overview(self._take_snapshot(), self._staleness_s)
        before, self._map = self._map, map_state(self._overview)
        snapshot = self._overview.snapshot
        changed = map_changes(before or self._map, self._map)
        changes = MapChanges(
            position=snapshot.position,
            at_ms=snapshot.at // MS,  # readings become stale at the same position
            gone=changed["gone"],
            added=changed["added"],
            rows=changed["rows"],
        )
        self.delta = MapDelta(self.delta.number + 1, _json(changes))

    def _take_snapshot(self) -> ClusterSnapshot:
        """Must not await. The tables are copied, because the view continues to change."""
        seen, cluster_state = self.live_view.snapshot(), _copied(self.live_view.cluster_state)
        return ClusterSnapshot(
            seen.position, self.live_view.now_ns(), cluster_state, seen.twin_columns
        )

    async def _add_power_point(self, now: float) -> None:
        self._power_at = now
        with contextlib.suppress(ViewBehind):
            await self.live_view.resume(RESUME_S)
            ages = self.live_view.ages
            # Nothing is known of now: the line ends where the readings do.
            if max(ages.heard_ms, ages.behind_ms) < GONE_MS:
                self.power.append(self._power_point())

    def _power_point(self) -> PowerPoint:
        overview = Overview(self._take_snapshot(), self._staleness_s)
        totals, snapshot = overview.totals(), overview.snapshot
        return PowerPoint(
            at_ms=snapshot.at // MS,
            position=snapshot.position,
            measured_w=_rounded(totals.measured_w),
            capped_w=_rounded(totals.capped_w),
        )

    def cluster(self, overview: Overview, ages: ViewAges, *, is_now: bool = True) -> Cluster:
        snapshot, totals = overview.snapshot, overview.totals()
        cluster_state = snapshot.cluster_state
        counted, cards = phases(cluster_state), count_cards(cluster_state)
        states = overview.states()
        inputs = self._health_inputs(overview, ages, counted["pending"], cards.unhealthy)
        return Cluster(
            position=snapshot.position,
            at_ms=snapshot.at // MS,
            age_ms=known_ms(ages.heard_ms),
            behind_ms=known_ms(ages.behind_ms),
            cluster=self._cluster,
            nodes=totals.nodes,
            classes=overview.classes(),
            asleep=states["asleep"],
            waking=states["waking"],
            not_ready=states["not ready"],
            cordoned=states["cordoned"],
            unmeasured=totals.nodes - totals.measured,
            measured_w=totals.measured_w,
            capped_w=totals.capped_w,
            tdp_w=totals.tdp_w,
            trend_w_per_min=totals.trend_w_per_min,
            gpus=int(sum(snapshot.twin_columns.floats("gpus").tolist())),
            gpu_units=overview.gpu_units(),
            gpus_asked=sum(overview.requested_gpus.tolist()),
            cards=cards.on_nodes,
            cards_unhealthy=cards.unhealthy,
            pods_running=counted["running"],
            pods_pending=counted["pending"],
            entries=self._tail.entry,
            planned_at_ms=cluster_state.planned_at // MS,
            plan=last_plan(cluster_state),
            **facility_of(cluster_state)._asdict(),
            **(self._of_now(inputs, ages) if is_now else OF_THE_PAST),
        )

    def _of_now(self, inputs: HealthInputs, ages: ViewAges) -> dict[str, Any]:
        beat, warnings = self.live_view.last_beat, warnings_of(inputs)
        return {
            "spooled": self.spools.waiting(),
            "lag": beat.lag if beat else None,
            "epoch": beat.epoch if beat else None,
            "warnings": warnings,
            "health": health_of(warnings, known_ms(ages.oldest_ms)),
        }

    @property
    def health(self) -> Health | None:
        return self.cluster(self.overview, self.ages).health

    def _health_inputs(
        self, overview: Overview, ages: ViewAges, pending: int, unhealthy: int
    ) -> HealthInputs:
        snapshot, totals, now = overview.snapshot, overview.totals(), self.live_view.now_ns()
        planned, decided = snapshot.cluster_state.planned_at, self._tail.decided_at
        beat, plan = self.live_view.last_beat, snapshot.cluster_state.plan
        return HealthInputs(
            heard_ms=ages.heard_ms,
            behind_ms=ages.behind_ms,
            waiting=beat.lag if beat else 0,
            broker_ms=max(0, beat.broker_ms) if beat else 0,
            projector_behind_ms=behind_ms_of(beat) if beat else 0,
            planned_s=(now - planned) / 1e9 if planned else None,
            interval_s=interval_s_of(plan) if plan else 0.0,
            nodes=totals.nodes,
            unmeasured=totals.nodes - totals.measured,
            pending=pending,
            decided_s=(now - decided) / 1e9 if decided else None,
            decisions_read_s=time.monotonic() - self._tail.decisions_read_at,
            unwritten=beat.unwritten if beat else 0,
            database=self._tail.database_error,
            cards_unhealthy=unhealthy,
            ledger_s=self._tail.ledger_s,
            incomplete=beat.incomplete if beat else (),
            spools=self.spools.all(),
            unsigned_s=self._tail.unsigned_s,
            unread_s=overview.oldest_stale_s(),
        )


def _rounded(watts: float | None) -> float | None:
    return None if watts is None else round(watts, 1)


def _copied(cluster_state: ClusterState) -> ClusterState:
    """Copies the tables only: the states in them are immutable."""
    copy = ClusterState()
    for table, states in tables_of(cluster_state).items():
        tables_of(copy)[table].update(states)
    return copy
