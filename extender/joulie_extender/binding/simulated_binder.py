"""A binder without Kubernetes: the simulator publishes that a pod is bound."""

from joulie_extender.binding.binder import BindRequest, BindResult, LookupFailed, PodLookup
from joulie_projections.view.view import View


class SimulatedBinder:
    """Reports success, as kube-scheduler expects; the simulator publishes the rest."""

    def __init__(self, view: View) -> None:
        self._view = view

    async def bind(self, request: BindRequest) -> BindResult:
        return BindResult("made")

    async def find(self, namespace: str, name: str, uid: str) -> PodLookup:
        """From the facts in the view, the only source there is."""
        if not self._view.is_ready:
            raise LookupFailed("nothing is known yet")
        pod = self._view.cluster_state.pods.get(uid)
        if pod is None:
            return PodLookup("gone")
        if pod.finished:
            return PodLookup("finished", pod.node, (), pod.pod)
        return PodLookup("bound" if pod.node else "waiting", pod.node, pod.pod.gpu.given, pod.pod)
