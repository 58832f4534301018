"""The newest attempt of a pod, with the names that the rows had at its view."""

import contextlib
from typing import NamedTuple

from joulie_answers.readers.history import HistoryReader
from joulie_answers.readers.time_travel import TimeTravel
from joulie_answers.views.decision_text import DescribedEntry, capital
from joulie_audit.questions.devices import Takes, takes
from joulie_audit.questions.explain import (
    Explanation,
    Logged,
    Outcome,
    about_newest,
    explain_logged,
    outcome_of,
    recompute_terms,
)
from joulie_bus.core.similar_names import similar_names
from joulie_bus.errors import BusError, NotAnswered, NotInTheLog, TooFarBack
from joulie_bus.events import Terms
from joulie_extender.decide.decide import answered_scores, candidate_names
from joulie_projections.history.history import EntryQuery, History
from joulie_projections.state.state import ClusterState
from joulie_projections.twin.row_names import RowNames

MOST_ENTRIES = 500  # about one pod; a pod that waits for days has more
NEVER_DECIDED = "{!r} was never filtered or scored; only its outcome is known."


class NamedAttempt(NamedTuple):
    found: Explanation
    names: RowNames

    def outcome(self, node: str) -> Outcome | None:
        """From the log, else by the node that the pod is on."""
        if self.found.outcome is not None or not node:
            return self.found.outcome
        return outcome_of(self.found.scored, node, self.names)

    def answers(self) -> dict[str, int]:
        """The score of each candidate as sent to kube-scheduler."""
        scored = self.found.scored
        if scored is None:
            return {}
        return dict(
            zip(candidate_names(scored, self.names), answered_scores(scored).tolist(), strict=True)
        )


class PodEntries(NamedTuple):
    """The newest entries about one pod, read once: its attempt is among those that are listed."""

    described: list[DescribedEntry]
    attempt: NamedAttempt | None  # None: it was never filtered or scored


class Attempts:
    def __init__(self, history: HistoryReader, travel: TimeTravel) -> None:
        self._history = history
        self._travel = travel

    async def about(self, uid: str, until: int | None, listed: int) -> PodEntries:
        """The entries that were made up to `until`, in nanoseconds; at most `listed` of them are
        described."""

        def query(history: History) -> tuple[PodEntries, Logged]:
            entries = list(history.find(EntryQuery(pod_uid=uid, until=until), MOST_ENTRIES))
            described = self._history.described(history, entries[:listed])
            logged = about_newest(entries)
            found = explain_logged(history, logged)
            named = NamedAttempt(found, history.row_names(found.view)) if found else None
            return PodEntries(described, named), logged

        read, logged = await self._history.run(query)
        attempt = read.attempt
        if attempt is None or not attempt.found.view or _has_names(attempt):
            return read
        with contextlib.suppress(BusError, NotInTheLog, TooFarBack):
            return read._replace(attempt=await self._named_by_facts(logged, attempt.found.view))
        return read

    async def _named_by_facts(self, logged: Logged, view: int) -> NamedAttempt | None:
        """Nodes were removed since, and the database has no longer all of their names."""
        snapshot = await self._travel.snapshot_at(view)
        names = RowNames.of_state(view, snapshot.cluster_state)
        explained = await self._history.run(lambda history: explain_logged(history, logged, names))
        return NamedAttempt(explained, names) if explained else None

    async def shown_terms(
        self, attempt: NamedAttempt, asked_for: str, placed_on: str
    ) -> list[Terms]:
        """The terms of these two nodes, where the log does not list them. Those of the node that
        was asked for raise what makes them impossible."""
        found = [await self._terms_of(attempt, asked_for)] if asked_for else []
        if placed_on and placed_on != asked_for and placed_on in attempt.answers():
            with contextlib.suppress(BusError, NotInTheLog, TooFarBack):
                found.append(await self._terms_of(attempt, placed_on))
        listed = attempt.found.scored.top if attempt.found.scored else []
        return [terms for terms in found if terms not in listed]

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

    async def _terms_of(self, attempt: NamedAttempt, node: str) -> Terms:
        """As recorded, else recomputed from the facts of the view."""
        scored = attempt.found.scored
        if scored is None:
            raise NotAnswered(404, "The log has no scores of this attempt.")
        if listed := next((terms for terms in scored.top if terms.node == node), None):
            return listed
        settings = attempt.found.settings
        if (weights := self._history.weights.get(settings)) is None:
            raise NotAnswered(410, capital(self._history.settings_unknown(settings)) + ".")
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
    if node not in (known := names.nodes()):
        return f"No node {node!r} is known. Known are {similar_names(node, known)}."
    return (
        f"{node} was no candidate: kube-scheduler did not send it (it filters nodes before it "
        "calls the extender, and samples the nodes of large clusters)."
    )
