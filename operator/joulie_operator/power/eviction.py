"""One call of the Eviction API, which keeps the budgets of PodDisruptionBudgets."""

from joulie_operator.kube.api_client import ApiServer, object_path
from joulie_operator.power.evictable import LivePod

NAMESPACES = "/api/v1/namespaces"


def pods_path(namespace: str) -> str:
    return object_path(NAMESPACES, namespace, "pods")


async def evict(api: ApiServer, pod: LivePod) -> None:
    """Only the pod with this uid, not another one of its name. Raises KubernetesRefused."""
    name, namespace = pod.metadata.name or "", pod.metadata.namespace or ""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": pod.metadata.uid or ""}},
    }
    await api.create(object_path(pods_path(namespace), name, "eviction"), body)
