"""Writes an Event on pods that were placed, from the outcomes in the decision log.

Events are a convenience: what is lost in a fault stays lost, because the log is the record.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from joulie_bus.errors import BadName, KubernetesRefused, StoreError, Undecodable
from joulie_bus.events import FilterDecided, OutcomeSeen, codec
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_operator.cluster_settings import ApplierSettings
from joulie_operator.desired.pod_events import (
    Announcement,
    EventBudget,
    Filtered,
    Placed,
    WaitingEvents,
    event_of,
    filtered_by,
)
from joulie_operator.kube.api_client import ApiServer, ApiUnreachable, object_path
from joulie_projections.history.history import EntryQuery, History, StoredEntry
from joulie_projections.view.view import View

PASS_S = 5.0
MOST_READ = 2000  # outcomes of one pass; more are skipped
MOST_WITHOUT_SCORES = 50  # of them, whose filter decision is read
OUTCOMES = EntryQuery(kinds=(OutcomeSeen.TYPE,))
FILTERS = EntryQuery(kinds=(FilterDecided.TYPE,))
EVENTS = "/apis/events.k8s.io/v1/namespaces"
OpenHistory = Callable[[], AbstractContextManager[History]]
log = get_logger("pod_events")


class PodEventWriter:
    """Follows the outcomes from the end of the log at its start."""

    def __init__(
        self, api: ApiServer, view: View, open_history: OpenHistory, settings: ApplierSettings
    ) -> None:
        self._api = api
        self._view = view
        self._open_history = open_history
        self._deadline_s = settings.deadline_s
        self._budget = EventBudget(settings.pod_events_share, time.monotonic())
        self._waiting = WaitingEvents()
        self._after = -1

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            try:
                await self._pass()
            except StoreError as error:
                log.warning("outcomes_unreadable", why=str(error), what="reading them again")
            await asyncio.sleep(PASS_S)

    async def _pass(self) -> None:
        placed = await asyncio.to_thread(self._new_outcomes)
        self._budget.earn(len(self._view.cluster_state.nodes), len(placed), time.monotonic())
        self._waiting.add(placed)
        for announced in self._waiting.drop_old(self._view.now_ns()):
            _count(announced, "skipped")
        while len(self._waiting) and self._budget.spend():
            if not await self._write(self._waiting.take()):
                return

    def _new_outcomes(self) -> list[Placed]:
        with self._open_history() as history:
            tip = history.tip()
            first, self._after = self._after, tip
            if first < 0 or first == tip:
                return []
            found = list(history.find(OUTCOMES._replace(after=first), MOST_READ))
            placed = [
                each for entry in reversed(found) if (each := _placement_of(entry)) is not None
            ]
            return _with_filters(history, placed)

    async def _write(self, announced: Announcement) -> bool:
        """False if the server does not answer: the others wait for the next pass."""
        tree = event_of(announced)
        try:
            async with asyncio.timeout(self._deadline_s):
                path = object_path(EVENTS, announced.placed.outcome.namespace, "events")
                await self._api.create(path, tree)
        except ApiUnreachable:
            _count(announced, "failed")
            return False
        except (KubernetesRefused, BadName) as error:  # the namespace is gone, or denied
            _count(announced, "failed")
            log.info("event_refused", pod=tree["regarding"]["name"], why=str(error))
            return True
        _count(announced, "done")
        return True


def _count(announced: Announcement, outcome: str) -> None:
    metrics.POD_EVENTS.labels(outcome=outcome).inc()
    if announced.others:
        metrics.POD_EVENTS.labels(outcome="aggregated").inc(announced.others)


def _placement_of(entry: StoredEntry) -> Placed | None:
    where = f"entry {entry.pos}"
    try:
        envelope = codec.open_envelope(entry.message, where)
        event = codec.read(envelope, where)
    except Undecodable:
        return None
    return Placed(entry.pos, envelope.ts, event) if isinstance(event, OutcomeSeen) else None


def _with_filters(history: History, placed: Sequence[Placed]) -> list[Placed]:
    """Adds the filter decisions of the newest pods without scores."""
    without = [each.outcome.pod_uid for each in placed if not each.outcome.decision]
    filters = {uid: _filtered(history, uid) for uid in without[-MOST_WITHOUT_SCORES:]}
    return [each._replace(filtered=filters.get(each.outcome.pod_uid)) for each in placed]


def _filtered(history: History, pod_uid: str) -> Filtered | None:
    """None if the extender was not asked about the pod."""
    for entry in history.find(FILTERS._replace(pod_uid=pod_uid), 1):
        where = f"entry {entry.pos}"
        with contextlib.suppress(Undecodable):
            event = codec.decoded(entry.message, where)
            if isinstance(event, FilterDecided):
                return filtered_by(entry.pos, event)
    return None
