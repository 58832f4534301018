"""Joulie's own pods on a node."""

from collections.abc import Sequence

from joulie_answers.schema.responses import PodBrief

OWN = "joulie-"


def own_pods(pods: Sequence[PodBrief]) -> list[str]:
    """The names of Joulie's own pods, as the chart gives them, which keep a node awake. An agent,
    as a pod of a DaemonSet, does not."""
    own = [pod for pod in pods if pod.name.startswith(OWN) and pod.exempt != "daemonset"]
    return [f"{pod.namespace}/{pod.name}" for pod in own if pod.phase == "running"]
