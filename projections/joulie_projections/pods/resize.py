"""The requests of a pod that is resized in place, as kube-scheduler counts them.

The rule is that of `PodRequests` in k8s.io/component-helpers/resource with `UseStatusResources`, in
versions 0.34 to 0.36: of each container and resource the largest of what the spec asks for, what
the kubelet has allocated, and what is in force. For a resize that can never be done (the condition
PodResizePending with the reason Infeasible) the spec does not count. The same holds for sidecars
and, from 0.35 on, for the requests of the pod as a whole. Without a status of this kind, as of a
pod that waits, the spec counts alone.
"""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from joulie_projections.pods.kubernetes_pod import (
    Amounts,
    Container,
    ContainerStatus,
    Pod,
    Resources,
    Status,
)
from joulie_projections.quantities import Quantity, parse

RESIZABLE = ("cpu", "memory")  # the API server refuses to change others
_NO_RESOURCES = Resources()
_NO_AMOUNTS = Amounts()


def as_counted(pod: Pod) -> Pod:
    """The pod with the requests that count in its spec."""
    if pod.status is None or not _known(pod.status):
        return pod
    count, spec = _Count(pod.status), pod.spec
    counted = replace(
        spec,
        containers=spec.containers and [count.of_container(each) for each in spec.containers],
        init_containers=spec.init_containers
        and [
            count.of_container(each) if each.is_sidecar else each for each in spec.init_containers
        ],
        resources=count.of_pod(spec.resources),
    )
    return replace(pod, spec=counted)


def _known(status: Status) -> bool:
    return bool(status.container_statuses or status.init_container_statuses or status.resources)


class _Count:
    """What the status of a pod adds to its spec."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._is_infeasible = _is_infeasible(status)
        statuses = [*(status.container_statuses or ()), *(status.init_container_statuses or ())]
        self._containers = {each.name: each for each in statuses}

    def of_container(self, container: Container) -> Container:
        status = self._containers.get(container.name)
        if status is None or status.resources is None:
            return container
        of_spec = container.resources or _NO_RESOURCES
        counted = self._largest(of_spec, status, RESIZABLE)
        return container if counted is of_spec else replace(container, resources=counted)

    def of_pod(self, of_spec: Resources | None) -> Resources | None:
        """Only resources that the pod asks for as a whole."""
        if of_spec is None or self._status.resources is None:
            return of_spec
        asked = [name for name in RESIZABLE if of_spec.requested(name) is not None]
        return self._largest(of_spec, self._status, asked)

    def _largest(
        self, of_spec: Resources, status: ContainerStatus | Status, names: Collection[str]
    ) -> Resources:
        """The same object if the spec counts as it is."""
        in_force = status.resources and status.resources.requests
        parts = (status.allocated_resources or _NO_AMOUNTS, in_force or _NO_AMOUNTS)
        changed: dict[str, Quantity] = {}
        for name in names:
            asked = of_spec.requested(name)
            amounts = [getattr(part, name) for part in parts]
            counted = _first_largest(amounts if self._is_infeasible else [asked, *amounts])
            if counted != asked:
                changed[name] = counted or 0
        if not changed:
            return of_spec
        return replace(of_spec, requests={**(of_spec.requests or {}), **changed})


def _is_infeasible(status: Status) -> bool:
    pending = (each for each in status.conditions or () if each.type == "PodResizePending")
    return next((each.reason == "Infeasible" for each in pending), False)


def _first_largest(amounts: Sequence[Quantity | None]) -> Quantity | None:
    """They are parsed only where their texts differ."""
    given = [amount for amount in amounts if amount is not None]
    if not given:
        return None
    return given[0] if len(set(given)) == 1 else max(given, key=parse)
