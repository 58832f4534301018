"""Why pods are pending: the newest answer about each, and what to do."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from joulie_answers.readers.history import PodAnswer
from joulie_answers.schema.responses import PendingCause, PendingPod
from joulie_answers.views.cluster_view import phase_of, pod_brief
from joulie_bus.core.times import MS
from joulie_bus.events import BindDecided, FallbackAnswered, FilterDecided
from joulie_extender.catalogue.rules import advice_of
from joulie_extender.rules.node_class import STALE_ADVICE
from joulie_operator.planning.refused_on_sample import FreeNodes, pods_refused_on_sample
from joulie_projections.pods.refusal import Refusal, refused_nodes
from joulie_projections.state.state import ClusterState, PodState

_NEVER = 2**63
_REFUSED_ON_SAMPLE = (
    "The operator nominates a node within seconds. An affinity to performance nodes avoids the "
    "first refusal."
)
_DESCRIBE = (
    "The command kubectl describe pod shows the reasons of kube-scheduler and of its other plugins."
)
_NOT_ASKED = (
    "kube-scheduler found no node before it asked, or another scheduler places the pod: see "
    "the command kubectl describe pod, and the pod's schedulerName."
)
_SLEEPING = (
    "The next plan wakes nodes for pods that fit on no node, if the policy lets nodes sleep."
)
_FULL = "Wait until pods end, add nodes, or lower the pod's requests."


class _Why(NamedTuple):
    cause: PendingCause
    reason: str
    advice: str


def pending_uids(cluster_state: ClusterState) -> list[str]:
    return [uid for uid, pod in cluster_state.pods.items() if phase_of(pod) == "pending"]


def pending_list(
    cluster_state: ClusterState, uids: Sequence[str], answers: Mapping[str, PodAnswer]
) -> list[PendingPod]:
    """The longest waiting first; those that the extender was never asked about last."""
    free = FreeNodes(cluster_state.nodes)
    asleep = sum(bool(node.power_state) for node in cluster_state.nodes.values())
    refused = _refused_on_sample(cluster_state, answers)
    items = [
        _pending(
            cluster_state.pods[uid],
            answers.get(uid),
            _why(cluster_state.pods[uid], answers.get(uid), uid in refused, free, asleep),
        )
        for uid in uids
    ]
    return sorted(items, key=lambda item: (item.since_ms or _NEVER, item.pod.uid))


def causes(items: Sequence[PendingPod]) -> dict[PendingCause, int]:
    """The most frequent first."""
    counted = Counter[PendingCause](item.cause for item in items)
    return dict(counted.most_common())


def _pending(pod: PodState, answer: PodAnswer | None, why: _Why) -> PendingPod:
    return PendingPod(
        pod=pod_brief(pod),
        cause=why.cause,
        reason=why.reason,
        advice=why.advice,
        entry=answer.described.brief.entry if answer else None,
        since_ms=answer.since // MS if answer else 0,
    )


def _refused_on_sample(cluster_state: ClusterState, answers: Mapping[str, PodAnswer]) -> set[str]:
    """The pods that wait because of a sample of the nodes."""
    refusals = [
        Refusal(uid, answer.described.brief.entry, answer.since, candidates)
        for uid, answer in answers.items()
        if (candidates := _refused_all(answer))
    ]
    found = pods_refused_on_sample(cluster_state.nodes, cluster_state.pods, refusals)
    return {each.pod.uid for each in found}


def _refused_all(answer: PodAnswer) -> int:
    event = answer.described.event
    return refused_nodes(event.verdicts) if isinstance(event, FilterDecided) else 0


def _why(
    pod: PodState, answer: PodAnswer | None, on_sample: bool, free: FreeNodes, asleep: int
) -> _Why:
    if answer is None:
        return _unasked(pod, free, asleep)
    brief, event = answer.described.brief, answer.described.event
    if on_sample:
        reason = f"{brief.reason}; all {brief.candidates} nodes of a sample were refused"
        return _Why("refused on sample", reason, _REFUSED_ON_SAMPLE)
    match event:
        case FilterDecided() if all(event.verdicts):
            if not event.verdicts:
                return _Why("refused", "the request held no node", _DESCRIBE)
            return _Why("refused", f"{brief.text}: {brief.reason}", _advice(event))
        case BindDecided():
            return _Why(
                "not bound", brief.text, "The extender tries again with the pod's next try."
            )
        case FallbackAnswered():
            return _Why("refused", f"an answer without a decision: {event.why}", STALE_ADVICE)
        case _:
            return _Why(
                "not placed", f"{brief.text}, but kube-scheduler placed it nowhere", _DESCRIBE
            )


def _unasked(pod: PodState, free: FreeNodes, asleep: int) -> _Why:
    if free.has_fit(pod.pod):
        return _Why("not asked", "the extender was not asked about it", _NOT_ASKED)
    if asleep:
        reason = f"no node that is awake has room for its requests; {asleep} sleep or wake up"
        return _Why("no room", reason, _SLEEPING)
    return _Why("no room", "no node has room for its requests", _FULL)


def _advice(event: FilterDecided) -> str:
    """By the most frequent verdict."""
    code = Counter(event.verdicts).most_common(1)[0][0]
    return advice_of(code, event.pod) or _DESCRIBE
