"""What becomes of a pod that is to move, as far as the replies of the API server decide it."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from joulie_operator.kube.api_client import CONFLICT, FORBIDDEN, NOT_FOUND, TOO_MANY, UNAUTHORIZED
from joulie_operator.power.evictable import LivePod, has_ended, why_it_stays
from joulie_projections.pods.kubernetes_pod import OwnerReference

STATEFUL = "StatefulSet"
TEMPLATE = "pod-template-hash"

What = Literal[
    "moved",  # its replacement is bound
    "waiting",  # its replacement is pending
    "lost",  # no replacement came
    "kept",  # it has to stay
    "skipped",  # it is not there any more
    "failed",
    "interrupted",
    "not-tried",
]


class Ordered(NamedTuple):
    """A move to carry out."""

    uid: str
    namespace: str
    name: str
    node: str
    note: str  # why, for the Event


class Outcome(NamedTuple):
    what: What
    node: str = ""  # of the replacement
    why: str = ""

    @property
    def ends_the_run(self) -> bool:
        return self.what not in ("moved", "kept", "skipped")


class Live(NamedTuple):
    """A pod as it is just before it would be evicted."""

    pod: LivePod
    owner: OwnerReference


GONE = Outcome("skipped", why="it is gone")
NOT_TRIED = Outcome("not-tried", why="the run ended before")


def owner_of(pod: LivePod) -> OwnerReference | None:
    return next((each for each in pod.metadata.owner_references or () if each.controller), None)


def judged(pod: LivePod | None, uid: str, namespace_class: str | None) -> Live | Outcome:
    if pod is None or pod.metadata.uid != uid:
        return GONE
    if pod.is_ending or has_ended(pod):
        return Outcome("skipped", why="it ends" if pod.is_ending else "it is finished")
    owner = owner_of(pod)
    why = why_it_stays(pod, namespace_class)
    if why or owner is None:
        return Outcome("kept", why=why)
    return Live(pod, owner)


def is_busy(code: int) -> bool:
    """Whether the same eviction may be allowed later."""
    return code == TOO_MANY


def refusal(code: int, why: str) -> Outcome:
    """The outcome of an eviction that the API server refused for good."""
    if code in (NOT_FOUND, CONFLICT):  # or another one has its name
        return GONE
    if code in (UNAUTHORIZED, FORBIDDEN):  # of all pods
        return Outcome("failed", why=why)
    return Outcome("kept", why=why)


def siblings_query(pod: LivePod) -> dict[str, str]:
    """The replacement has the same label; the server sends fewer pods."""
    template = (pod.metadata.labels or {}).get(TEMPLATE)
    return {"labelSelector": f"{TEMPLATE}={template}"} if template else {}


def replacements(live: Live, known: frozenset[str], pods: Iterable[LivePod]) -> list[LivePod]:
    """Pods of the same controller that were not there before the eviction."""
    found = [each for each in pods if (each.metadata.uid or "") not in known]
    found = [each for each in found if _has_owner(each, live.owner) and not each.is_ending]
    if live.owner.kind == STATEFUL:  # others may be added at the same time
        found = [each for each in found if each.metadata.name == live.pod.metadata.name]
    return found


def bound_to(found: Sequence[LivePod]) -> str:
    """The node of the first that is bound; empty if none is."""
    return next((each.spec.node_name for each in found if each.spec.node_name), "")


def _has_owner(pod: LivePod, owner: OwnerReference) -> bool:
    found = owner_of(pod)
    return found is not None and found.uid == owner.uid
