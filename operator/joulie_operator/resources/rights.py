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


class Right(NamedTuple):
    verb: str
    group: str
    resource: str
    part: str = ""  # a subresource, such as status
    namespace: str = ""  # empty for all

    def __str__(self) -> str:
        what = "/".join(filter(None, (self.resource, self.part)))
        named = f"{what}.{self.group}" if self.group else what
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {named}{where}"


def _rights(verbs: str, group: str, what: str, namespace: str = "") -> Iterator[Right]:
    resource, _, part = what.partition("/")
    for verb in verbs.split():
        yield Right(verb, group, resource, part, namespace)


# For pods that an extender refused.
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
    *_rights("get create update", "coordination.k8s.io", "leases", OWN_NAMESPACE),
)
BINDING_EXTENDER = (
    *_rights("create", "", "pods/binding"),
    *_rights("get", "", "pods"),
)
# For the operator, if a number of the policy allows evictions.
EVICTIONS = (*_rights("create", "", "pods/eviction"),)
# For `joulie callout`.
REVIEWS = (*_rights("create", "authentication.k8s.io", "tokenreviews"),)
RIGHTS = {
    "operator": OPERATOR,
    "extender": BINDING_EXTENDER,
    "evictions": EVICTIONS,
    "callout": REVIEWS,
}
