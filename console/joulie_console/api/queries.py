"""Every question of the API, answered. HTTP is elsewhere; nothing here writes anything."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from joulie_bus.events import PrioritizeDecided, Terms
from joulie_console.schema import requests, responses
from joulie_console.stream.event_tail import Journal
from joulie_console.stream.plans import Page, PlanPages
from joulie_console.stream.poller import Pulse
from joulie_console.views import cluster_view, decision_text
from joulie_console.views.cluster_view import MS, Glance
from joulie_console.views.decision_text import KINDS, Told, candidates_of, explain
from joulie_console.views.past import Past
from joulie_console.views.time_travel import Travel
from joulie_projections.decision_log.entry import MAX_COLUMN_INT
from joulie_projections.history.history import EntryQuery, StoredEntry
from joulie_projections.state.state import NodeState, PodState

EXPLAINED = 50  # decisions about one pod that its page shows
TRANSITIONS = 100  # of one node that its page shows
T = TypeVar("T")


class Refused(Exception):
    """An answer of its own kind: what is not there, or not any more."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Given(NamedTuple):
    """The moment that an answer is of."""

    glance: Glance
    age_ms: int
    is_now: bool

    def stamp(self) -> dict[str, Any]:
        moment = self.glance.moment
        return {
            "position": moment.position,
            "at_ms": moment.at // MS,
            "age_ms": self.age_ms,
        }


class Older(NamedTuple):
    """Where answers come from that are not of now."""

    past: Past
    travel: Travel
    plans: PlanPages


class Console:
    def __init__(
        self,
        pulse: Pulse,
        journal: Journal,
        older: Older,
        clock: Callable[[], int],
        staleness_s: float,
    ) -> None:
        self.pulse = pulse
        self.journal = journal
        self._past, self._travel, self._plans = older.past, older.travel, older.plans
        self._clock = clock
        self._staleness_s = staleness_s

    @property
    def is_ready(self) -> bool:
        return self.journal.is_ready and self.pulse.step.number > 0

    # --- moments ------------------------------------------------------------------------------

    def _now(self) -> Given:
        return Given(self.pulse.glance, self.pulse.age_ms, is_now=True)

    async def _given(self, asked: requests.Moment) -> Given:
        if asked.at is not None and asked.time is not None:
            raise Refused(400, "Give `at` or `time`, not both.")
        newest = self.pulse.glance.moment.position
        wanted = asked.at
        if asked.time is not None:
            wanted = await self._position_by(_ns(asked.time))
        if wanted is None or wanted == newest:
            return self._now()
        if wanted > newest:
            raise Refused(404, f"Position {wanted} has not come yet: the newest is {newest}.")
        moment = await self._travel.to(wanted)
        age_ms = max(0, self._clock() - moment.at) // MS
        return Given(Glance(moment, self._staleness_s), age_ms, is_now=False)

    async def _position_by(self, time_ns: int) -> int:
        if time_ns >= self._clock():
            return self.pulse.glance.moment.position
        manifest = await self._past.manifest_by(time_ns) if time_ns > 0 else None
        if manifest is None:
            raise Refused(410, "Nothing had been committed by that time.")
        return min(manifest.p_to, self.pulse.glance.moment.position)

    async def reach(self, _: requests.Nothing) -> responses.Reach:
        first, last = await self._past.first_manifest(), await self._past.last_manifest()
        return responses.Reach(
            **self._now().stamp(),
            first=first.p_to if first else 0,
            first_at_ms=first.committed_at // MS if first else 0,
            last=last.p_to if last else 0,
            last_at_ms=last.committed_at // MS if last else 0,
            entries=self.journal.entry,
        )

    # --- the cluster --------------------------------------------------------------------------

    async def cluster(self, asked: requests.Moment) -> responses.Cluster:
        given = await self._given(asked)
        return self.pulse.cluster(given.glance, given.age_ms, is_now=given.is_now)

    async def power(self, asked: requests.Power) -> responses.PowerSeries:
        points = [point for point in self.pulse.power if point.at_ms > asked.since]
        return responses.PowerSeries(**self._now().stamp(), points=points)

    async def map(self, asked: requests.Moment) -> responses.Map:
        given = await self._given(asked)
        return responses.Map(**given.stamp(), **cluster_view.map_columns(given.glance))

    # --- nodes --------------------------------------------------------------------------------

    async def nodes(self, asked: requests.Nodes) -> responses.NodeList:
        given = await self._given(asked)
        cluster_state = given.glance.moment.cluster_state
        names = [
            name
            for name, node in cluster_state.nodes.items()
            if asked.q in name and _fits_rack(node, asked.rack)
        ]
        briefs = [given.glance.node(name) for name in names]
        if asked.node_class is not None:
            briefs = [brief for brief in briefs if brief.node_class == asked.node_class]
        items = _sorted_nodes(briefs, asked)
        page, following = _page(items, asked.offset, asked.limit)
        return responses.NodeList(**given.stamp(), items=page, total=len(items), next=following)

    async def node(self, asked: requests.Moment, name: str) -> responses.NodeDetail:
        given = await self._given(asked)
        glance, cluster_state = given.glance, given.glance.moment.cluster_state
        node = cluster_state.nodes.get(name)
        if node is None:
            raise Refused(404, f"There is no node {name!r} at position {glance.moment.position}.")
        brief = glance.node(name)
        told = await self._transitions(name, glance.moment.position + 1)
        return responses.NodeDetail(
            **given.stamp(),
            node=brief,
            labels=node.labels,
            samples=cluster_view.samples_of(node),
            machine=cluster_view.state_of(node, brief.node_class),
            transitions=[
                line.entry.transition
                for line in told.lines
                if isinstance(line.entry.transition, responses.Transition)
            ],
            earlier=told.following,
            plans_gone=self.journal.plans_gone,
            pods=cluster_view.pods_on(cluster_state, name),
            cards=cluster_view.cards_of(cluster_state, name),
        )

    async def _transitions(self, node: str, before: int) -> Page:
        """What memory has of it; only who looks back beyond that waits for the stream."""
        found = self._plans.remembered(before, node, TRANSITIONS)
        if found.following is not None and before <= self.journal.first_plan:
            return await self._plans.before(before, node, TRANSITIONS)
        return found

    # --- pods and cards -----------------------------------------------------------------------

    async def pods(self, asked: requests.Pods) -> responses.PodList:
        given = await self._given(asked)
        briefs = [
            cluster_view.pod_brief(pod)
            for pod in given.glance.moment.cluster_state.pods.values()
            if _fits_pod(pod, asked)
        ]
        briefs.sort(key=lambda brief: (brief.namespace, brief.name, brief.uid))
        page, following = _page(briefs, asked.offset, asked.limit)
        return responses.PodList(**given.stamp(), items=page, total=len(briefs), next=following)

    async def pod(self, asked: requests.Moment, uid: str) -> responses.PodDetail:
        given = await self._given(asked)
        pod = given.glance.moment.cluster_state.pods.get(uid)
        until = None if given.is_now else given.glance.moment.at
        found = await self._told(EntryQuery(pod_uid=uid, until=until), EXPLAINED)
        if pod is None and not found:
            raise Refused(404, f"Nobody has seen a pod with the uid {uid!r}.")
        return responses.PodDetail(
            **given.stamp(),
            pod=cluster_view.pod_brief(pod) if pod else None,
            decisions=[told.brief for told in found],
            explanation=explain(pod.pod if pod else None, pod.node if pod else "", found),
        )

    async def gpus(self, asked: requests.Gpus) -> responses.GpuList:
        given = await self._given(asked)
        cards = [
            card
            for card in cluster_view.cards_of(given.glance.moment.cluster_state)
            if asked.node in ("", card.node) and asked.model in ("", card.model)
        ]
        page, following = _page(cards, asked.offset, asked.limit)
        return responses.GpuList(**given.stamp(), items=page, total=len(cards), next=following)

    # --- decisions ----------------------------------------------------------------------------

    async def _told(self, wanted: EntryQuery, limit: int) -> list[Told]:
        found = await self._past.newest(requests.LARGEST, wanted, limit, lambda _: True)
        return [self._past.told(entry, self.journal.names) for entry in found.entries]

    async def decisions(self, asked: requests.Decisions) -> responses.DecisionList:
        wanted = EntryQuery(
            pod_uid=asked.uid,
            pod=asked.pod,
            kinds=(KINDS[asked.verb],) if asked.verb else (),
            since=_ns(asked.since) if asked.since else None,
            until=_ns(asked.until) if asked.until else None,
        )
        names, told = self.journal.names, self._past.told

        def fits(entry: StoredEntry) -> bool:
            if not (asked.node or asked.workload):
                return True
            found = told(entry, names)
            is_class = asked.workload in (None, found.brief.workload)
            return is_class and (not asked.node or asked.node in found.nodes)

        before = asked.before or requests.LARGEST
        found = await self._past.newest(before, wanted, asked.limit, fits)
        return responses.DecisionList(
            **self._now().stamp(),
            items=[told(entry, names).brief for entry in found.entries],
            next=found.following,
            entries=self.journal.entry,
        )

    async def decision(self, asked: requests.Decision, entry: int) -> responses.DecisionDetail:
        logged = await self._past.entry(entry)
        if logged is None:
            newest = self.journal.entry
            raise Refused(404, f"There is no entry {entry}: the newest is {newest}.")
        told = self._past.told(logged, self.journal.names)
        event: Any = told.event
        settings = event.basis.settings if hasattr(event, "basis") else ""
        weights = self._past.weights_by(settings)
        computed, same = await self._computed(asked, event)
        pod = getattr(event, "pod", None)
        return responses.DecisionDetail(
            **self._now().stamp(),
            decision=told.brief,
            settings=settings,
            values=self._past.values_of(settings),
            code=self._past.code_of(settings),
            pod=cluster_view.pod_brief(PodState(pod=pod)) if pod else None,
            cluster_trend_w_per_min=getattr(event, "cluster_trend_w_per_min", None),
            perf_pressure=getattr(event, "perf_pressure", None),
            candidates=candidates_of(event, self.journal.names, weights, computed),
            cards=getattr(event, "cards", []),
            error=getattr(event, "error", ""),
            hash=bytes(logged.hash).hex(),
            prev=bytes(logged.prev).hex(),
            same_digest=same,
        )

    async def _computed(
        self, asked: requests.Decision, event: object
    ) -> tuple[Sequence[Terms], bool | None]:
        """The terms of every candidate, from the facts of back then, with the code that decided."""
        if asked.terms != "all" or not isinstance(event, PrioritizeDecided):
            return [], None
        weights = self._past.weights.get(event.basis.settings)
        if weights is None:
            raise Refused(410, f"The settings {event.basis.settings} are not in the log.")
        moment = await self._travel.to(event.basis.view)
        try:
            return decision_text.computed_again(event, moment.twin_columns, weights)
        except (KeyError, StopIteration) as error:
            raise Refused(410, "A candidate is not on the board of that position.") from error

    # --- plans and heads ----------------------------------------------------------------------

    async def plans(self, asked: requests.Plans) -> responses.PlanList:
        found = await self._plans.before(asked.before or requests.LARGEST, asked.node, asked.limit)
        return responses.PlanList(
            **self._now().stamp(),
            items=[line.entry for line in found.lines],
            next=found.following,
            plans_gone=self.journal.plans_gone,
        )

    async def heads(self, asked: requests.Heads) -> responses.HeadList:
        before = asked.before or requests.LARGEST
        found = await self._past.heads(before, asked.limit + 1)
        newest = await self._past.heads(requests.LARGEST, 1)
        items = [
            responses.SignedHead(
                entry=head.pos,
                hash=head.hash.hex(),
                signed_at_ms=head.signed_at // MS,
                key_id=head.key_id,
                signature=head.signature.hex(),
            )
            for head in found[: asked.limit]
        ]
        entries = self.journal.entry
        return responses.HeadList(
            **self._now().stamp(),
            items=items,
            next=items[-1].entry if len(found) > asked.limit else None,
            entries=entries,
            unsigned=max(0, entries - newest[0].pos) if newest else entries,
        )


def _ns(instant: datetime) -> int:
    """As far as a column reaches: who asks for the year 9999 means for ever."""
    return max(-MAX_COLUMN_INT, min(MAX_COLUMN_INT, int(instant.timestamp() * 1_000_000) * 1_000))


def _fits_rack(node: NodeState, rack: str) -> bool:
    return not rack or node.labels.get(cluster_view.RACK_LABEL, "") == rack


def _fits_pod(pod: PodState, asked: requests.Pods) -> bool:
    ask = pod.pod
    return (
        (asked.q in f"{ask.namespace}/{ask.name}" or asked.q == ask.uid)
        and asked.node in ("", pod.node)
        and asked.workload in (None, ask.workload)
        and asked.phase in (None, cluster_view.phase_of(pod))
    )


_ORDERS: dict[str, Callable[[responses.NodeBrief], float | None]] = {
    "headroom": lambda node: node.headroom,
    "cooling": lambda node: node.cooling,
    "measured": lambda node: node.measured_w,
    "trend": lambda node: node.trend_w_per_min,
    "pods": lambda node: node.pods,
    "gpus": lambda node: node.gpus,
}


def _sorted_nodes(
    briefs: Sequence[responses.NodeBrief], asked: requests.Nodes
) -> list[responses.NodeBrief]:
    """What is unknown comes last either way; ties go by name."""
    down = asked.order == "desc"
    by_name = sorted(briefs, key=lambda node: node.name, reverse=down and asked.sort == "name")
    if asked.sort == "name":
        return by_name
    value = _ORDERS[asked.sort]
    sign = -1 if down else 1
    return sorted(by_name, key=lambda node: (value(node) is None, sign * (value(node) or 0)))


def _page(items: Sequence[T], offset: int, limit: int) -> tuple[list[T], int | None]:
    end = offset + limit
    return list(items[offset:end]), end if end < len(items) else None
