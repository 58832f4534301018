"""The rights at the API server that each component needs. Tests compare it with deploy/."""

from collections.abc import Iterator
from typing import NamedTuple

from joulie_operator.resources.custom_resources import GPU_GROUP, GROUP
from joulie_operator.resources.device_objects import (
    CLAIMS,
    CLASSES,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
)
from joulie_operator.resources.device_objects import GROUP as DEVICES

OWN_NAMESPACE = "."  # that of the installation
LEASE = "joulie-operator"  # which the leading operator holds


class Right(NamedTuple):
    verb: str
    group: str
    resource: str
    part: str = ""  # a subresource, such as status
    namespace: str = ""  # empty for all
    name: str = ""  # of the only object; empty for all

    def __str__(self) -> str:
        what = "/".join(filter(None, (self.resource, self.part)))
        named = f"{what}.{self.group}" if self.group else what
        only = f" {self.name}" if self.name else ""
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {named}{only}{where}"


def _rights(verbs: str, group: str, what: str) -> Iterator[Right]:
    resource, _, part = what.partition("/")
    for verb in verbs.split():
        yield Right(verb, group, resource, part)


def _lease_rights() -> Iterator[Right]:
    """`create` names no object; a policy of deploy/rbac.yaml does."""
    kind = ("coordination.k8s.io", "leases", "", OWN_NAMESPACE)
    yield Right("create", *kind)
    for verb in ("get", "update"):
        yield Right(verb, *kind, LEASE)


# For pods that an extender refused, and for the mark of pods whose requests were changed.
NOMINATE = Right("patch", "", "pods", "status")
OPERATOR = (
    *_rights("list watch", "", "pods"),
    *_rights("list watch", "", "namespaces"),
    NOMINATE,
    *_rights("list watch patch", "", "nodes"),
    *_rights("list watch create patch delete", GROUP, "nodehardwares"),
    *_rights("patch", GROUP, "nodehardwares/status"),
    *_rights("list watch create patch delete", GPU_GROUP, "gpus"),
    *_rights("patch", GPU_GROUP, "gpus/status"),
    *_rights("list watch create patch delete", GROUP, "nodetwins"),
    *_rights("patch", GROUP, "nodetwins/status"),
    *(
        right
        for kind in (SLICES, CLAIMS, TEMPLATES, CLASSES, TAINT_RULES)
        for right in _rights("list watch", DEVICES, kind)
    ),
    *_rights("create", "events.k8s.io", "events"),
    *_lease_rights(),
)
BINDING_EXTENDER = (
    *_rights("create", "", "pods/binding"),
    *_rights("get", "", "pods"),
)
# For the operator, if a number of the policy allows evictions.
EVICTIONS = (*_rights("create", "", "pods/eviction"),)
# For the operator, with REQUESTS=in-place; it marks pods by the right of `NOMINATE`.
REQUESTS = (
    *_rights("patch", "", "pods/resize"),
    *_rights("list", "autoscaling", "horizontalpodautoscalers"),
    *_rights("list", "autoscaling.k8s.io", "verticalpodautoscalers"),
)
# For `joulie callout`.
REVIEWS = (*_rights("create", "authentication.k8s.io", "tokenreviews"),)
RIGHTS = {
    "operator": OPERATOR,
    "extender": BINDING_EXTENDER,
    "evictions": EVICTIONS,
    "requests": REQUESTS,
    "callout": REVIEWS,
}
