"""The name of what a pod is one of many of, by the name of the pod."""

import re

# Kubernetes makes suffixes of these characters, among which are no vowels, so that no words occur.
_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
_SUFFIX = re.compile(
    rf"(?:-{_RANDOM}{{6,10}}-{_RANDOM}{{5}}"  # of a ReplicaSet of a Deployment
    rf"|(?:-[0-9]+)?-{_RANDOM}{{5}}"  # of a DaemonSet or a Job; one of a CronJob has its minute
    r"|-[0-9]+)\Z"  # of a StatefulSet
)


def workload_of(pod: str) -> str:
    """The name without the part in which pods of one Deployment, StatefulSet, DaemonSet or Job
    differ. A pod of its own keeps its name."""
    found = _SUFFIX.search(pod)
    return pod[: found.start()] or pod if found else pod
