"""What decides about the node of a pod and is not modelled: it is counted, never passed over."""

from collections.abc import Collection, Iterator

from joulie_simulator.kube_scheduler.objects import LabelSelector, Pod, PodTerm, PodTerms
from joulie_simulator.kube_scheduler.selectors import selector_of

VOLUMES = "a volume that may be tied to nodes, or that nodes hold only so many of"
CLAIMS = "a claim of devices (DRA)"
GROUP = "a group of pods that is placed as a whole"
GATES = "a scheduling gate"
SCHEDULER = "another scheduler places it"
NAMESPACES = "an affinity by labels of namespaces, which could not be listed"
COMPARED = "a toleration that compares numbers"

USUAL_SCHEDULERS = ("", "default-scheduler")
# Of these no filter of kube-scheduler asks.
_ANYWHERE = {
    *("configMap", "downwardAPI", "emptyDir", "hostPath", "image", "name", "nfs", "projected"),
    "secret",
}


def unknown_of(
    pod: Pod,
    *,
    knows_namespaces: bool = True,
    schedulers: Collection[str] = USUAL_SCHEDULERS,
) -> list[str]:
    """Empty if the model decides as kube-scheduler does. `schedulers` are those that it models."""
    return list(_found(pod, knows_namespaces=knows_namespaces, schedulers=schedulers))


def _found(pod: Pod, *, knows_namespaces: bool, schedulers: Collection[str]) -> Iterator[str]:
    spec = pod.spec
    if any(not _ANYWHERE.issuperset(volume) for volume in spec.volumes or ()):
        yield VOLUMES
    if spec.resource_claims:
        yield CLAIMS
    if spec.scheduling_group and spec.scheduling_group.pod_group_name:
        yield GROUP
    if spec.scheduling_gates:
        yield GATES
    if (spec.scheduler_name or "") not in schedulers:
        yield SCHEDULER
    if not knows_namespaces and any(map(_selects, _selectors(pod))):
        yield NAMESPACES
    if any(each.operator in ("Gt", "Lt") for each in spec.tolerations or ()):
        yield COMPARED


def _selects(selector: LabelSelector | None) -> bool:
    """Whether the labels of namespaces decide."""
    return selector is not None and not selector_of(selector).is_everything


def _selectors(pod: Pod) -> Iterator[LabelSelector | None]:
    affinity = pod.spec.affinity
    for terms in (affinity and affinity.pod_affinity, affinity and affinity.pod_anti_affinity):
        for term in _terms(terms) if terms else ():
            yield term.namespace_selector


def _terms(terms: PodTerms) -> Iterator[PodTerm]:
    yield from terms.required_during_scheduling_ignored_during_execution or ()
    for each in terms.preferred_during_scheduling_ignored_during_execution or ():
        yield each.pod_affinity_term
