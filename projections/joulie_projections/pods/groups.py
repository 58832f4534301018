"""The group of pods that a pod is placed together with, by the names that schedulers give it."""

from joulie_projections.pods.kubernetes_pod import Pod

VOLCANO = "scheduling.k8s.io/group-name"  # an annotation
# Labels, the most specific first: Kueue may admit a JobSet, whose pods then have both.
_LABELS = (
    ("scheduling.x-k8s.io/pod-group", "coscheduling"),
    ("kueue.x-k8s.io/pod-group-name", "kueue"),
    ("volcano.sh/job-name", "volcano"),
    ("jobset.sigs.k8s.io/jobset-name", "jobset"),
)
_LONGEST = 253  # a label value is shorter; a longer name is no name of an object


def group_of(pod: Pod) -> str:
    """Such as jobset/train; empty if the pod is in none."""
    kind, name = _named(pod)
    return f"{kind}/{name}" if name and len(name) <= _LONGEST and name.isprintable() else ""


def _named(pod: Pod) -> tuple[str, str]:
    own = pod.spec.scheduling_group
    if own is not None and own.pod_group_name:
        return "podgroup", own.pod_group_name
    if name := (pod.metadata.annotations or {}).get(VOLCANO):
        return "volcano", name
    labels = pod.metadata.labels
    if not labels:
        return "", ""  # the common case
    found = ((kind, name) for label, kind in _LABELS if (name := labels.get(label)))
    return next(found, ("", ""))
