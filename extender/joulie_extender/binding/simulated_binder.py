"""Bindings where there is no Kubernetes: whoever plays the cluster says that a pod is bound."""

from joulie_extender.binding.binder import CannotTell, Found, Order, Told
from joulie_projections.view.view import View


class PretendedBinder:
    """Answers that it is done, as kube-scheduler will; the simulator publishes the rest."""

    def __init__(self, view: View) -> None:
        self._view = view

    async def bind(self, order: Order) -> Told:
        return Told("made")

    async def find(self, namespace: str, name: str, uid: str) -> Found:
        """As the facts have it: nobody knows more."""
        if not self._view.is_ready:
            raise CannotTell("nothing is known yet")
        pod = self._view.cluster_state.pods.get(uid)
        if pod is None:
            return Found("gone")
        if pod.finished:
            return Found("finished", pod.node, (), pod.pod)
        return Found("bound" if pod.node else "waiting", pod.node, pod.pod.gpu.given, pod.pod)
