"""The questions that only a console answers, beside those of `joulie_answers`: what it holds in
memory of the whole cluster."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from joulie_answers.answers import Answers, HistorySources
from joulie_answers.schema import requests, responses
from joulie_answers.schema.responses import ReplicaSpool, Stamp
from joulie_answers.views import cluster_view
from joulie_answers.views.cluster_view import Overview
from joulie_bus.core.times import MS
from joulie_console.api.reports import Reports
from joulie_console.stream.event_tail import EventTail
from joulie_console.stream.poller import ClusterPoller
from joulie_extender.gpu.models import Aliases
from joulie_projections.state.completeness import ViewAges, known_ms


class NewestInMemory:
    """The newest state that the poller has, and the newest entry that the tail knows."""

    def __init__(self, poller: ClusterPoller, tail: EventTail) -> None:
        self._poller = poller
        self._tail = tail

    @property
    def overview(self) -> Overview:
        return self._poller.overview

    @property
    def ages(self) -> ViewAges:
        return self._poller.ages

    @property
    def position(self) -> int:
        return self._poller.live_view.position

    @property
    def entries(self) -> int:
        return self._tail.entry

    def spools(self) -> Sequence[ReplicaSpool]:
        return self._poller.spools.all()

    def stamp(self) -> Stamp:
        """Of an answer that shows nothing of the newest snapshot, which costs an update."""
        view = self._poller.live_view
        return {
            "position": view.position,
            "at_ms": view.now_ns() // MS,
            "age_ms": known_ms(view.ages.heard_ms),
            "behind_ms": known_ms(view.ages.behind_ms),
        }


class ConsoleSources(NamedTuple):
    history: HistorySources
    reports: Reports


class Console(Answers):
    def __init__(
        self,
        poller: ClusterPoller,
        tail: EventTail,
        sources: ConsoleSources,
        staleness_s: float,
        aliases: Aliases = (),
    ) -> None:
        clock = poller.live_view.now_ns
        newest = NewestInMemory(poller, tail)
        super().__init__(newest, sources.history, clock, staleness_s, aliases)
        self._reports = sources.reports
        self.poller = poller
        self.tail = tail

    @property
    def is_ready(self) -> bool:
        return self.tail.is_ready and self.poller.delta.number > 0

    async def reach(self, _: requests.NoParameters) -> responses.Reach:
        first, last = await self._history.first_manifest(), await self._history.last_manifest()
        return responses.Reach(
            **self._stamp(),
            first=first.p_to if first else 0,
            first_at_ms=first.committed_at // MS if first else 0,
            last=last.p_to if last else 0,
            last_at_ms=last.committed_at // MS if last else 0,
            entries=self.tail.entry,
        )

    async def report(self, query: requests.Report) -> responses.Report:
        found = await self._reports.of(self._period(query.since, query.until))
        return responses.Report(**self._stamp(), signed="signature" in found, report=found)

    async def cluster(self, query: requests.SnapshotQuery) -> responses.Cluster:
        resolved = await self._resolve(query)
        return self.poller.cluster(resolved.overview, resolved.ages, is_now=resolved.is_now)

    async def status(self, query: requests.NoParameters) -> responses.Status:
        """With the sentence that the page has: what this console sees is newer than a lease."""
        status, health = await super().status(query), self.poller.health
        return status if health is None else replace(status, health=health)

    async def power(self, query: requests.Power) -> responses.PowerSeries:
        points = [point for point in self.poller.power if point.at_ms > query.since]
        return responses.PowerSeries(**self._stamp(), points=points)

    async def map(self, query: requests.SnapshotQuery) -> responses.Map:
        resolved = await self._resolve(query)
        return responses.Map(**resolved.stamp(), **cluster_view.map_columns(resolved.overview))
