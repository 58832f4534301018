"""The newest attempt of a pod, with the names that the rows had at its view."""

import contextlib
from typing import NamedTuple

from joulie_answers.readers.history import HistoryReader
from joulie_answers.readers.time_travel import TimeTravel
from joulie_audit.questions.devices import Takes, takes
from joulie_audit.questions.explain import (
    Explanation,
    Outcome,
    explain_pod,
    outcome_of,
    recompute_terms,
)
from joulie_bus.errors import BusError, NotAnswered, NotInTheLog, TooFarBack
from joulie_bus.events import Terms
from joulie_extender.decide.decide import candidate_names
from joulie_projections.history.history import History
from joulie_projections.state.state import ClusterState
from joulie_projections.twin.row_names import RowNames

MOST_ENTRIES = 500  # about one pod; a pod that waits for days has more


class NamedAttempt(NamedTuple):
    found: Explanation
    names: RowNames

    def outcome(self, node: str) -> Outcome | None:
        """From the log, else by the node that the pod is on."""
        if self.found.outcome is not None or not node:
            return self.found.outcome
        return outcome_of(self.found.scored, node, self.names)


class Attempts:
    def __init__(self, history: HistoryReader, travel: TimeTravel) -> None:
        self._history = history
        self._travel = travel

    async def newest(self, pod: str) -> NamedAttempt:
        """Raises NotInTheLog if the pod was never filtered or scored."""

        def query(history: History) -> NamedAttempt:
            found = explain_pod(history, pod, None, MOST_ENTRIES)
            return NamedAttempt(found, history.row_names(found.view))

        attempt = await self._history.run(query)
        if not attempt.found.view or _has_names(attempt):
            return attempt
        with contextlib.suppress(BusError, NotInTheLog, TooFarBack):
            return await self._named_by_facts(pod, attempt.found.view)
        return attempt

    async def _named_by_facts(self, pod: str, view: int) -> NamedAttempt:
        """Nodes were removed since, and the database has no longer all of their names."""
        snapshot = await self._travel.snapshot_at(view)
        names = RowNames.of_state(view, snapshot.cluster_state)
        explained = await self._history.run(
            lambda history: explain_pod(history, pod, names, MOST_ENTRIES)
        )
        return NamedAttempt(explained, names)

    async def devices_of(self, attempt: NamedAttempt, node: str) -> Takes | None:
        """Where the pod is, or on the best node, by the state of the view; None for pods without
        devices of DRA, and where that state cannot be folded any more."""
        found, scored = attempt.found, attempt.found.scored
        where = node or (scored.top[0].node if scored and scored.top else "")
        if not found.pod.devices.claims or not found.view or not where:
            return None
        try:
            snapshot = await self._travel.snapshot_at(found.view)
        except (BusError, NotInTheLog, TooFarBack):
            return None
        state = snapshot.cluster_state
        return takes(found.pod, where, state, _before(found, where, state))

    async def terms_of(self, attempt: NamedAttempt, node: str) -> Terms:
        """As recorded, else recomputed from the facts of the view."""
        scored = attempt.found.scored
        if scored is None:
            raise NotAnswered(404, "The log has no scores of this attempt.")
        if listed := next((terms for terms in scored.top if terms.node == node), None):
            return listed
        settings = attempt.found.settings
        if (weights := self._history.weights.get(settings)) is None:
            raise NotAnswered(410, f"The settings {settings} are not in the log.")
        snapshot = await self._travel.snapshot_at(attempt.found.view)
        terms = recompute_terms(scored, node, snapshot.twin_columns, weights)
        if terms is None:
            raise NotAnswered(404, _no_candidate(attempt, node))
        return terms


def _before(found: Explanation, node: str, state: ClusterState) -> int | None:
    """The devices there of pods in flight; None: not known."""
    known, flying = state.nodes.get(node), found.in_flight
    if known is None or flying is None:
        return None
    return sum(each.devices for each in flying if each.ordinal == known.ordinal)


def _has_names(attempt: NamedAttempt) -> bool:
    found = attempt.found
    decisions = [each for each in (found.filtered, found.scored) if each is not None]
    names = attempt.names.at(found.view)
    return all(names.include(each.candidates) for each in decisions)


def _no_candidate(attempt: NamedAttempt, node: str) -> str:
    filtered, names = attempt.found.filtered, attempt.names
    if filtered and node in candidate_names(filtered, names):
        return f"{node} was refused by the filter, so it was not scored: {filtered.reason}."
    known = "is an unknown node" if node not in names.nodes() else "was no candidate"
    return (
        f"{node} {known}: kube-scheduler did not send it (it filters nodes before it calls the "
        "extender, and samples the nodes of large clusters)."
    )
