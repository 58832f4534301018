"""Placements of pods as Kubernetes Events, within a budget of requests."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from joulie_bus.events import FilterDecided, OutcomeSeen
from joulie_operator.desired.kubernetes_events import CONTROLLER
from joulie_operator.resources.timestamps import rfc3339_micro

REASON, ACTION = "PlacedByJoulie", "Scheduling"
MAX_NOTE = 1024  # characters that the API server accepts
# What a cluster sends to its API server without us, at the least.
REQUESTS_S = 1.0  # kube-controller-manager and kube-scheduler renew their Leases every 2 s
REQUESTS_PER_NODE_S = 0.1  # a kubelet renews its Lease every 10 s
REQUESTS_PER_POD = 3  # created, bound, and the Event of kube-scheduler
BURST = 20.0  # Events that an idle cluster saves up
LONGEST_WAIT_NS = 300 * 10**9  # after the placement; a later Event would not help
MOST_WAITING = 500  # workloads


class Placed(NamedTuple):
    """One outcome of the decision log."""

    entry: int
    at_ns: int
    outcome: OutcomeSeen
    filtered: "Filtered | None" = None  # of a pod without scores


class Filtered(NamedTuple):
    """The filter decision of a pod for which kube-scheduler asked for no scores."""

    entry: int
    passed: int
    nodes: int
    without_view: bool


class Announcement(NamedTuple):
    """One Event, on the newest of several pods of one workload."""

    placed: Placed
    others: int


class EventBudget:
    """Allows a share of the requests that the cluster has made anyway, by the numbers of its nodes
    and of the pods that were placed. Nothing is allowed in advance.
    """

    def __init__(self, share: float, now_s: float) -> None:
        self._share = share
        self._saved = 0.0
        self._earned_s = now_s

    def earn(self, nodes: int, pods: int, now_s: float) -> None:
        per_s = REQUESTS_S + nodes * REQUESTS_PER_NODE_S
        requests = per_s * (now_s - self._earned_s) + pods * REQUESTS_PER_POD
        self._saved = min(BURST, self._saved + self._share * requests)
        self._earned_s = now_s

    def spend(self) -> bool:
        """Whether one more Event may be written."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True


class WaitingEvents:
    """Placements without an Event yet: one per workload, on its newest pod."""

    def __init__(self) -> None:
        self._by_workload: dict[tuple[str, str], Announcement] = {}  # the newest last

    def __len__(self) -> int:
        return len(self._by_workload)

    def add(self, placed: Iterable[Placed]) -> None:
        """The pods that the extender did not answer for are left out."""
        for each in placed:
            if not each.outcome.decision and each.filtered is None:
                continue
            key = each.outcome.namespace, workload_of(each.outcome.name)
            known = self._by_workload.pop(key, None)
            self._by_workload[key] = Announcement(each, known.others + 1 if known else 0)

    def take(self) -> Announcement:
        """The newest: if there are more than the budget allows, they are at least in time."""
        return self._by_workload.popitem()[1]

    def drop_old(self, now_ns: int) -> list[Announcement]:
        """Those that waited too long, and the oldest of too many."""
        many = len(self._by_workload) - MOST_WAITING
        old = [
            key
            for at, (key, each) in enumerate(self._by_workload.items())
            if at < many or now_ns - each.placed.at_ns > LONGEST_WAIT_NS
        ]
        return [self._by_workload.pop(key) for key in old]


def workload_of(pod: str) -> str:
    """The name without the last part, which controllers generate."""
    return pod.rpartition("-")[0] or pod


def event_of(announced: Announcement) -> dict[str, Any]:
    placed = announced.placed
    outcome = placed.outcome
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{outcome.name[:200]}-", "namespace": outcome.namespace},
        "eventTime": rfc3339_micro(placed.at_ns),
        "reportingController": CONTROLLER,
        "reportingInstance": CONTROLLER,
        "action": ACTION,
        "reason": REASON,
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": outcome.namespace,
            "name": outcome.name,
            "uid": outcome.pod_uid,
        },
        "note": note_of(announced)[:MAX_NOTE],
        "type": "Normal",
    }


def filtered_by(entry: int, decided: FilterDecided) -> Filtered:
    passed = decided.verdicts.count(0)
    return Filtered(entry, passed, len(decided.verdicts), decided.basis.view == 0)


def note_of(announced: Announcement) -> str:
    placed, others = announced.placed, announced.others
    outcome, filtered = placed.outcome, placed.filtered
    more = f" {others} more pods of this workload were placed with it." if others else ""
    is_blind = filtered.without_view if filtered else outcome.without_view
    blind = " Joulie had no view of the cluster yet." if is_blind else ""
    how = _alone(filtered) if filtered else _rank(outcome)
    entry = filtered.entry if filtered else placed.entry
    return (
        f"Placed on {outcome.node}, {how} (entry {entry}).{blind}{more} "
        f"`kubectl joulie explain {outcome.name} -n {outcome.namespace}` shows why."
    )


def _alone(filtered: Filtered) -> str:
    """kube-scheduler asks for no scores if one node is left."""
    if filtered.nodes == 1:
        return "the only node for which kube-scheduler asked; it passed Joulie's filter"
    if filtered.passed == 1:
        return f"the only one of {filtered.nodes} nodes that passed Joulie's filter"
    return f"one of {filtered.passed} nodes that passed Joulie's filter, without scores"


def _rank(outcome: OutcomeSeen) -> str:
    if outcome.rank is None or outcome.score is None:
        return "which was not among the nodes that Joulie scored"
    if not outcome.regret:
        return f"the best by Joulie's score with {outcome.score}"
    place = f"number {outcome.rank} by Joulie's score with {outcome.score}"
    return f"{place}, {outcome.regret} less than the best"
