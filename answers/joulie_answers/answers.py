"""What people ask: a query in, its answer out. Read-only; neither HTTP nor a command line."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from math import inf
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from joulie_answers.newest import Newest
from joulie_answers.place.foretold import Question, foretold
from joulie_answers.place.manifest import read as read_manifest
from joulie_answers.place.placing import Moment
from joulie_answers.readers import pending_pods
from joulie_answers.readers.attempt_values import Beside, attempt_of, group_of, outcome_brief
from joulie_answers.readers.attempts import NEVER_DECIDED, Attempts, NamedAttempt
from joulie_answers.readers.energy import EnergyReader, Period
from joulie_answers.readers.facts import OpenFacts
from joulie_answers.readers.history import HistoryReader
from joulie_answers.readers.plan_pages import Page, PlanPages, RecentPlans
from joulie_answers.readers.status import completed, from_database
from joulie_answers.readers.time_travel import SERVED, Bounds, TimeTravel
from joulie_answers.readers.timeline import Known, timeline_of
from joulie_answers.schema import requests, responses
from joulie_answers.schema.responses import Stamp
from joulie_answers.text.pod import sentences
from joulie_answers.views import cards, cluster_view, decision_text
from joulie_answers.views.awake import keeps_awake
from joulie_answers.views.caps import caps_of
from joulie_answers.views.cluster_view import Overview, policy_of
from joulie_answers.views.decision_text import (
    KINDS,
    LISTED,
    DescribedEntry,
    candidates_of,
    capital,
    considers,
    failed_text,
)
from joulie_answers.views.defragment import NOT_ASKED, ONLY_ADVICE, defragment_of
from joulie_answers.views.plan_text import next_plan_of, plain_inputs, power_shares
from joulie_audit.chain.log_start import trimmed_hint
from joulie_audit.questions.explain import not_there
from joulie_audit.questions.gang import gang_now
from joulie_audit.questions.next_plan import next_plan
from joulie_bus.core.similar_names import similar_names
from joulie_bus.core.times import MS, utc_text
from joulie_bus.errors import EMPTY, JoulieError, NotAnswered, NotInTheLog
from joulie_bus.events import PlanMade, PrioritizeDecided, Terms
from joulie_bus.runtime.logging import get_logger
from joulie_extender.catalogue.weights import Weights
from joulie_extender.defragment.plan import defragmentation_plan
from joulie_extender.gpu.models import Aliases
from joulie_operator.planning.reconcile import LoadedPolicy
from joulie_operator.planning.refused_on_sample import refusable_pods
from joulie_operator.plugins import load_policy
from joulie_projections.chain.entry import MAX_COLUMN_INT
from joulie_projections.fold.commit import Cut
from joulie_projections.history.history import EntryQuery, History
from joulie_projections.state.completeness import ViewAges, known_ms
from joulie_projections.state.state import NodeState, PodState

log = get_logger("answers")
EXAMINED = 500  # pending pods that one query examines
AHEAD_S = 60.0  # a clock of a client may be fast; a later time has no state yet
PLACE_S = 20.0  # for a manifest; clients wait 35 s
HOUR = 3_600_000_000_000  # ns
PLANS_READ = 100  # lines, for the names of some plans
DECISIONS_PER_POD = 50  # decisions in the response about one pod
T = TypeVar("T")


class ResolvedSnapshot(NamedTuple):
    """The snapshot that a response describes."""

    overview: Overview
    ages: ViewAges
    is_now: bool

    def stamp(self) -> Stamp:
        snapshot = self.overview.snapshot
        return {
            "position": snapshot.position,
            "at_ms": snapshot.at // MS,
            "age_ms": known_ms(self.ages.heard_ms),
            "behind_ms": known_ms(self.ages.behind_ms),
        }


class HistorySources(NamedTuple):
    """The sources of everything that is not in the newest snapshot."""

    history: HistoryReader
    time_travel: TimeTravel
    plans: PlanPages
    energy: EnergyReader
    bounds: Bounds

    @classmethod
    def over(
        cls,
        facts: OpenFacts,
        history: HistoryReader,
        recent: RecentPlans,
        energy: EnergyReader,
        bounds: Bounds = SERVED,
    ) -> "HistorySources":
        travel = TimeTravel(facts, history, bounds)
        return cls(history, travel, PlanPages(facts, history, recent), energy, bounds)


class Answers:
    """One method per question."""

    def __init__(
        self,
        newest: Newest,
        sources: HistorySources,
        clock: Callable[[], int],
        staleness_s: float,
        aliases: Aliases = (),
    ) -> None:
        self._newest = newest
        self._history, self._plans = sources.history, sources.plans
        self._bounds = sources.bounds
        self._time_travel, self._energy = sources.time_travel, sources.energy
        self._attempts = Attempts(sources.history, sources.time_travel)
        self._clock = clock
        self._staleness_s = staleness_s
        self._aliases = aliases  # of models of cards
        self._placing = asyncio.Lock()  # one manifest at a time: it takes a whole core

    # --- points in time -----------------------------------------------------------------------

    def _now(self) -> ResolvedSnapshot:
        overview = self._newest.overview
        return ResolvedSnapshot(overview, self._newest.ages, is_now=True)

    def _stamp(self) -> Stamp:
        return self._newest.stamp()

    async def _resolve(self, query: requests.SnapshotQuery) -> ResolvedSnapshot:
        if query.at is not None and query.time is not None:
            raise NotAnswered(400, "Give either `at` or `time`, not both.")
        position = query.at
        if query.time is not None:
            position = await self._position_by(_ns(query.time))
        now = self._now()
        newest = now.overview.snapshot.position
        if position is None or position == newest:
            return now
        newest = self._newest.position  # the overview may be of half a second before
        if position > newest:
            why = f"There is no position {position}: the log has 1 to {newest}. Nothing was read."
            raise NotAnswered(404, why)
        snapshot = await self._time_travel.snapshot_at(position)
        age_ms = max(0, self._clock() - snapshot.at) // MS
        ages = ViewAges(age_ms, age_ms)
        return ResolvedSnapshot(Overview(snapshot, self._staleness_s), ages, is_now=False)

    async def _position_by(self, time_ns: int) -> int:
        ahead_s = (time_ns - self._clock()) / 1e9
        if ahead_s > AHEAD_S:
            newest = self._now().overview.snapshot
            newest_commit = f"position {newest.position}, is of {utc_text(newest.at // MS)}"
            raise NotAnswered(
                404,
                f"{utc_text(time_ns // MS)} is in the future. The newest commit, {newest_commit}.",
            )
        if ahead_s >= 0:
            return self._newest.overview.snapshot.position
        manifest = await self._history.manifest_by(time_ns) if time_ns > 0 else None
        if manifest is None:
            raise NotAnswered(410, await self._before_the_log(time_ns))
        return min(manifest.p_to, self._newest.overview.snapshot.position)

    async def _before_the_log(self, time_ns: int) -> str:
        begin, cut = await self._history.run(_begin_of)
        if cut is not None:
            return f"The state at {utc_text(time_ns // MS)} is not stored: {trimmed_hint(cut)}"
        begins = f": the log begins with position 1 at {utc_text(begin // MS)}" if begin else ""
        return f"There is no state at {utc_text(time_ns // MS)}{begins}."

    def _require_facts(self) -> None:
        if not self._newest.position:
            raise NotAnswered(404, EMPTY)

    # --- nodes --------------------------------------------------------------------------------

    async def nodes(self, query: requests.Nodes) -> responses.NodeList:
        resolved = await self._resolve(query)
        cluster_state = resolved.overview.snapshot.cluster_state
        names = [
            name
            for name, node in cluster_state.nodes.items()
            if query.q in name and _matches_rack(node, query.rack)
        ]
        briefs = [resolved.overview.node(name) for name in names]
        if query.node_class is not None:
            briefs = [brief for brief in briefs if brief.node_class == query.node_class]
        items = _sorted_nodes(briefs, query)
        page, following = _page(items, query.offset, query.limit)
        return responses.NodeList(**resolved.stamp(), items=page, total=len(items), next=following)

    async def node(self, name: str, query: requests.Node) -> responses.NodeDetail:
        self._require_facts()
        resolved = await self._resolve(query)
        overview, cluster_state = resolved.overview, resolved.overview.snapshot.cluster_state
        node = cluster_state.nodes.get(name)
        if node is None:
            raise NotAnswered(404, _unknown_node(name, overview.snapshot))
        pods, at = cluster_view.pods_on(cluster_state, name), overview.snapshot.at
        page = await self._transitions(name, overview.snapshot.position + 1, query.transitions)
        return responses.NodeDetail(
            **resolved.stamp(),
            node=overview.node(name),
            ambient_c=overview.ambient_c(name),
            hardware=overview.hardware_source(name),
            caps=caps_of(node, at),
            awake_because=keeps_awake(name, cluster_state, pods, at),
            labels=node.labels,
            samples=cluster_view.samples_of(node),
            machine=cluster_view.state_of(node, policy_of(cluster_state)),
            transitions=[
                line.entry.transition
                for line in page.lines
                if isinstance(line.entry.transition, responses.Transition)
            ],
            earlier=page.following,
            plans_gone=self._plans.gone,
            pods=pods,
            cards=cards.cards_on(cluster_state, name),
        )

    async def _transitions(self, node: str, before: int, most: int) -> Page:
        """From memory if possible. Only a query for older ones reads the stream."""
        if not most:
            return Page([], None)
        found = self._plans.from_memory(before, node, most)
        if found.following is not None and before <= self._plans.first_in_memory:
            return await self._plans.before(before, node, most)
        return found

    # --- pods and cards -----------------------------------------------------------------------

    async def pods(self, query: requests.Pods) -> responses.PodList:
        resolved = await self._resolve(query)
        briefs = [
            cluster_view.pod_brief(pod)
            for pod in resolved.overview.snapshot.cluster_state.pods.values()
            if _matches_pod(pod, query)
        ]
        briefs.sort(key=lambda brief: (brief.namespace, brief.name, brief.uid))
        page, following = _page(briefs, query.offset, query.limit)
        return responses.PodList(**resolved.stamp(), items=page, total=len(briefs), next=following)

    async def pod(self, uid: str, query: requests.Pod) -> responses.PodDetail:
        resolved = await self._resolve(query)
        uid = await self._uid_of(uid, resolved)
        pod = resolved.overview.snapshot.cluster_state.pods.get(uid)
        found = await self._attempts.about(uid, _until(resolved), DECISIONS_PER_POD)
        if pod is None and not found.described:
            why = await self._history.run(lambda history: not_there(history, uid))
            raise NotAnswered(404, why)
        if found.attempt is None and query.candidate:
            raise NotInTheLog(NEVER_DECIDED.format(uid))
        detail = responses.PodDetail(
            **resolved.stamp(),
            pod=cluster_view.pod_brief(pod) if pod else None,
            decisions=[described.brief for described in found.described],
            explanation=[],
            attempt=None,
            outcome=None,
            group=None,
        )
        try:
            detail = replace(detail, **await self._attempt(query, found.attempt, pod, resolved))
            known = Known(detail.pod, detail.outcome, self._history.weights)
            timeline = timeline_of(found.described, known)
            return replace(detail, explanation=sentences(detail), timeline=timeline)
        except JoulieError:
            raise
        except Exception as fault:  # anything: the decisions must be shown
            log.exception("attempt_not_described", pod=uid)
            return replace(detail, explanation=[failed_text(fault)])

    async def _attempt(
        self,
        query: requests.Pod,
        attempt: NamedAttempt | None,
        pod: PodState | None,
        resolved: ResolvedSnapshot,
    ) -> dict[str, Any]:
        """The newest attempt, where the pod is, and its group."""
        state = resolved.overview.snapshot.cluster_state
        if attempt is None:
            group = gang_now(pod.pod, state) if pod else None
            return {"attempt": None, "outcome": None, "group": group_of(group)}
        outcome = attempt.outcome(pod.node if pod else "")
        placed_on = outcome.node if outcome else ""
        settings = attempt.found.settings
        beside = Beside(
            answers=attempt.answers(),
            more=await self._attempts.shown_terms(attempt, query.candidate, placed_on),
            placed_on=placed_on,
            devices=await self._attempts.devices_of(attempt, placed_on),
            settings_unknown=self._history.settings_unknown(settings),
        )
        return {
            "attempt": attempt_of(attempt.found, self._history.weights.get(settings), beside),
            "outcome": outcome_brief(outcome),
            "group": group_of(gang_now(attempt.found.pod, state)),
        }

    async def _uid_of(self, text: str, resolved: ResolvedSnapshot) -> str:
        """The uid of a pod that is named by namespace/name, by its name alone or by its uid: of the
        newest one with that name."""
        pods = resolved.overview.snapshot.cluster_state.pods
        if text in pods:
            return text
        names = {uid: f"{pod.pod.namespace}/{pod.pod.name}" for uid, pod in pods.items()}
        named = {uid: name for uid, name in names.items() if text in (name, name.partition("/")[2])}
        _require_one(text, named.values())
        if named:
            return next(iter(named))
        found = await self._described(
            EntryQuery(pod=text, until=_until(resolved)), DECISIONS_PER_POD
        )
        if text not in {each.brief.pod_uid for each in found}:
            _require_one(text, (f"{each.brief.namespace}/{each.brief.name}" for each in found))
        return found[0].brief.pod_uid if found else text

    async def pending(self, query: requests.Pending) -> responses.PendingList:
        resolved = self._now()
        cluster_state = resolved.overview.snapshot.cluster_state
        uids = pending_pods.pending_uids(cluster_state)
        answers = await self._history.newest_answers(uids[:EXAMINED])
        items = pending_pods.pending_list(cluster_state, uids[:EXAMINED], answers)
        page, following = _page(items, query.offset, query.limit)
        return responses.PendingList(
            **resolved.stamp(),
            items=page,
            total=len(uids),
            next=following,
            causes=pending_pods.causes(items),
            unread=len(uids) - len(items),
        )

    async def energy(self, query: requests.Energy) -> responses.Energy:
        period = self._period(query.since, query.until, query.hours * HOUR)
        return await self._energy.energy(self._stamp(), period, query)

    def _period(
        self, first: datetime | None, last: datetime | None, usual: int | None = None
    ) -> Period:
        """`usual`: its length without `first`, in nanoseconds; None: from the first fact on."""
        until = _ns(last) if last else self._clock()
        begin = until - usual if usual else 0
        since = _ns(first) if first else begin
        if since >= until:
            raise NotAnswered(400, "`since` must be before `until`.")
        return Period(since // MS, until // MS)

    async def saved(self, _query: requests.NoParameters) -> responses.Saved:
        return await self._energy.saved(self._stamp(), self._clock() // MS)

    async def workload_requests(
        self, query: requests.WorkloadRequests
    ) -> responses.WorkloadRequestList:
        state, now_ms = self._newest.overview.snapshot.cluster_state, self._clock() // MS
        return await self._energy.workload_requests(self._stamp(), state, now_ms, query)

    async def gpus(self, query: requests.Gpus) -> responses.GpuList:
        resolved = await self._resolve(query)
        snapshot = resolved.overview.snapshot
        chosen = cards.chosen(snapshot.cluster_state, query, self._aliases)
        page, following = _page(chosen, query.offset, query.limit)
        idle = await self._energy.idle_holders() if resolved.is_now else None
        names = cards.uuids(chosen)
        is_all = cards.selects_all(query)
        return responses.GpuList(
            **resolved.stamp(),
            items=[cards.card_of(snapshot.cluster_state, *each) for each in page],
            total=len(chosen),
            next=following,
            sums=cards.sums_of([card for _, card in chosen]),
            free_gpus=cards.free_by_model(snapshot.twin_columns, self._aliases) if is_all else None,
            idle=None if idle is None else [each for each in idle if each.uuid in names],
        )

    # --- decisions ----------------------------------------------------------------------------

    async def _described(self, selection: EntryQuery, limit: int) -> list[DescribedEntry]:
        found = await self._history.newest(requests.MAX_INTEGER, selection, limit, lambda _: True)
        return found.entries

    async def decisions(self, query: requests.Decisions) -> responses.DecisionList:
        selection = EntryQuery(
            pod_uid=query.uid,
            pod=query.pod,
            namespace=query.namespace,
            kinds=(KINDS[query.verb],) if query.verb else LISTED,
            since=_ns(query.since) if query.since else None,
            until=_ns(query.until) if query.until else None,
        )

        considered = await self._considered(query.candidate) if query.candidate else None

        def matches(found: DescribedEntry) -> bool:
            is_class = query.workload in (None, found.brief.workload)
            is_node = not query.node or query.node in found.nodes()
            return is_class and is_node and (considered is None or considered(found))

        before = query.before or requests.MAX_INTEGER
        found = await self._history.newest(before, selection, query.limit, matches)
        return responses.DecisionList(
            **self._stamp(),
            items=[each.brief for each in found.entries],
            next=found.following,
            entries=self._newest.entries,
        )

    async def _considered(self, node: str) -> Callable[[DescribedEntry], bool]:
        """Whether an entry considered the node, which had several rows perhaps."""
        names = await self._history.run(lambda history: history.row_names())
        if node not in (known := names.nodes()):
            why = f"No node {node!r} is known. Known are {similar_names(node, known)}."
            raise NotAnswered(404, why)
        spans = names.spans_of(node)

        return lambda found: considers(found.event, node, spans)

    async def decision(self, entry: int, query: requests.Decision) -> responses.DecisionDetail:
        opened = await self._history.entry(entry)
        if opened is None:
            newest = self._newest.entries
            raise NotAnswered(404, f"No entry {entry}: the newest is {newest}.")
        logged, described, names = opened
        found = described.explained
        settings = found.basis.settings if found.basis else ""
        weights = self._history.weights.get(settings)
        is_scored = bool(settings) and isinstance(described.event, PrioritizeDecided)
        computed, same = await self._computed(query, described.event)
        return responses.DecisionDetail(
            **self._stamp(),
            decision=described.brief,
            settings=settings,
            settings_unknown=self._history.settings_unknown(settings) if is_scored else "",
            values=self._history.values_of(settings),
            code=self._history.code_of(settings),
            pod=cluster_view.pod_brief(PodState(pod=found.pod)) if found.pod else None,
            cluster_trend_w_per_min=found.trend_w_per_min,
            perf_pressure=found.pressure,
            candidates=candidates_of(described.event, names, weights, computed),
            cards=list(found.cards),
            error=found.error,
            hash=bytes(logged.hash).hex(),
            prev=bytes(logged.prev).hex(),
            same_digest=same,
        )

    async def _computed(
        self, query: requests.Decision, event: object
    ) -> tuple[Sequence[Terms], bool | None]:
        """The terms of every candidate, from the facts of that position."""
        if query.terms != "all" or not isinstance(event, PrioritizeDecided):
            return [], None
        settings = event.basis.settings
        if (weights := self._history.weights.get(settings)) is None:
            raise NotAnswered(410, capital(self._history.settings_unknown(settings)) + ".")
        snapshot = await self._time_travel.snapshot_at(event.basis.view)
        try:
            return decision_text.recomputed_terms(event, snapshot.twin_columns, weights)
        except (KeyError, StopIteration) as error:
            raise NotAnswered(410, "A candidate has no twin at that position.") from error

    # --- plans and heads ----------------------------------------------------------------------

    async def plans(self, query: requests.Plans) -> responses.PlanList:
        found = Page([], None)
        if self._newest.position:  # else there may be no stream to read yet
            before = query.before or requests.MAX_INTEGER
            found = await self._plans.before(before, query.node, query.limit, query.changed)
        return responses.PlanList(
            **self._stamp(),
            items=[line.entry for line in found.lines],
            next=found.following,
            plans_gone=self._plans.gone,
        )

    async def plan(self, which: str, _query: requests.NoParameters) -> responses.PlanDetail:
        self._require_facts()
        found = await self._plans.whole(which, self._bounds.plans)
        if found is None:
            page = await self._plans.before(requests.MAX_INTEGER, "", PLANS_READ, changed=True)
            raise NotAnswered(404, _unknown_plan(which, page))
        return responses.PlanDetail(
            **self._stamp(),
            plan=cluster_view.plan_brief(found.made),
            made_position=found.position,
            made_at_ms=found.at // MS,
            inputs=plain_inputs(found.made),
            shares=power_shares(found.made),
            settings=found.made.settings,
            transitions=found.transitions,
        )

    async def next_plan(self, query: requests.NextPlan) -> responses.NextPlan:
        self._require_facts()
        snapshot = self._newest.overview.snapshot
        newest = snapshot.cluster_state.plan
        if newest is None:
            why = "The operator has made no plan yet, so its settings are unknown."
            raise NotAnswered(404, why)
        try:
            policy = load_policy(newest.policy)
        except ValueError as error:
            why = f"The policy {newest.policy} of {newest.plan}: {error}"
            raise NotAnswered(404, why) from error
        at, state, view = snapshot.at or newest.now, snapshot.cluster_state, snapshot.position
        now = at + round(query.after_s * 1e9)
        found = await asyncio.to_thread(next_plan, newest, state, policy, view, now)
        made = next_plan_of(found, newest.plan, at, query.after_s)
        return responses.NextPlan(**self._now().stamp(), **made)

    async def defragment(self, query: requests.Defragment) -> responses.DefragmentPlan:
        """By the newest facts. Budgets and volumes are not in the log, and not considered."""
        state = self._newest.overview.snapshot.cluster_state
        plan = await asyncio.to_thread(defragmentation_plan, state, self._aliases, query.moves)
        made = defragment_of(plan, [NOT_ASKED, ONLY_ADVICE])
        return msgspec.convert({**self._now().stamp(), **made}, responses.DefragmentPlan)

    async def place(self, query: requests.Place) -> responses.Foretold:
        """By the newest facts, and the settings that were declared last. Nothing is written."""
        self._require_facts()
        patience_s = inf if self._bounds.timeout_s is None else PLACE_S
        over_at = time.monotonic() + patience_s
        declared = await self._history.newest_settings()
        weights = self._history.weights_of(declared) if declared else Weights()
        async with self._placing:
            resolved = self._now()
            snapshot = resolved.overview.snapshot
            state, position = snapshot.cluster_state, snapshot.position
            at = await self._history.run(lambda history: history.committed_at(position))
            moment = Moment(state, snapshot.twin_columns, position, at or snapshot.at, weights)

            def compute() -> dict[str, Any]:
                manifest = read_manifest(query.manifest, query.namespace)
                question = Question(manifest, _policy_of(state.plan), bool(declared))
                return foretold(moment, question, lambda: time.monotonic() > over_at)

            found = await asyncio.to_thread(compute)
        return responses.Foretold(**resolved.stamp(), **found)

    async def status(self, _query: requests.NoParameters) -> responses.Status:
        now, state = self._clock(), self._newest.overview.snapshot.cluster_state
        refusable, ledger_s = refusable_pods(state.pods), await self._energy.behind_s()
        found = await self._history.run(from_database(refusable, ledger_s))
        status = completed(found, state, now, self._staleness_s, self._newest.spools())
        return replace(status, **self._stamp())

    async def heads(self, query: requests.Heads) -> responses.HeadList:
        before = query.before or requests.MAX_INTEGER
        found = await self._history.heads(before, query.limit + 1)
        # Of one reading, where it can be: a head may be signed between two of them.
        newest = found
        if query.before is not None:
            newest = await self._history.heads(requests.MAX_INTEGER, 1)
        items = [
            responses.SignedHead(
                entry=head.pos,
                hash=head.hash.hex(),
                signed_at_ms=head.signed_at // MS,
                key_id=head.key_id,
                note=head.note,
            )
            for head in found[: query.limit]
        ]
        entries = self._newest.entries
        return responses.HeadList(
            **self._stamp(),
            items=items,
            next=items[-1].entry if len(found) > query.limit else None,
            entries=entries,
            unsigned=max(0, entries - newest[0].pos) if newest else entries,
        )


def _policy_of(newest: PlanMade | None) -> LoadedPolicy | None:
    try:
        return load_policy(newest.policy) if newest else None
    except ValueError:  # of another installation
        return None


def _until(resolved: ResolvedSnapshot) -> int | None:
    """When an entry was made at the latest, to be known at that point in time."""
    return None if resolved.is_now else resolved.overview.snapshot.at


def _require_one(text: str, names: Iterable[str]) -> None:
    if len(found := sorted(set(names))) > 1:
        why = f"{text!r} matches several pods: {', '.join(found[:5])}. Write namespace/name."
        raise NotAnswered(404, why)


def _begin_of(history: History) -> tuple[int, Cut | None]:
    spans = history.commit_time_range()
    return (spans[0] if spans else 0), history.cut()


def _unknown_node(name: str, snapshot: cluster_view.ClusterSnapshot) -> str:
    at = f"at position {snapshot.position} ({utc_text(snapshot.at // MS)})"
    names = list(snapshot.cluster_state.nodes)
    if not names:
        return f"There was no node {at}."
    return f"No node {name!r} was known {at}. Known were {similar_names(name, names)}."


def _unknown_plan(which: str, newest: Page) -> str:
    plans = [line.entry.plan for line in newest.lines]
    names = [plan.plan for plan in plans if isinstance(plan, responses.PlanBrief)]
    known = ", ".join(names[:3]) or "none"
    return f"There is no plan {which!r}. The newest are {known}; see `joulie plans`."


def _ns(instant: datetime) -> int:
    """Nanoseconds, clamped to the largest integer of a column (the year 9999 is beyond it)."""
    return max(-MAX_COLUMN_INT, min(MAX_COLUMN_INT, int(instant.timestamp() * 1_000_000) * 1_000))


def _matches_rack(node: NodeState, rack: str) -> bool:
    return not rack or node.labels.get(cluster_view.RACK_LABEL, "") == rack


def _matches_pod(pod: PodState, query: requests.Pods) -> bool:
    ask = pod.pod
    return (
        (query.q in f"{ask.namespace}/{ask.name}" or query.q == ask.uid)
        and query.node in ("", pod.node)
        and query.workload in (None, ask.workload)
        and query.phase in (None, cluster_view.phase_of(pod))
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
    briefs: Sequence[responses.NodeBrief], query: requests.Nodes
) -> list[responses.NodeBrief]:
    """Unknown values come last in both orders; ties are sorted by name."""
    down = query.order == "desc"
    by_name = sorted(briefs, key=lambda node: node.name, reverse=down and query.sort == "name")
    if query.sort == "name":
        return by_name
    value = _ORDERS[query.sort]
    sign = -1 if down else 1
    return sorted(by_name, key=lambda node: (value(node) is None, sign * (value(node) or 0)))


def _page(items: Sequence[T], offset: int, limit: int) -> tuple[list[T], int | None]:
    end = offset + limit
    return list(items[offset:end]), end if end < len(items) else None
