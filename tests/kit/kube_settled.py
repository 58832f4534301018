"""A cluster in which the operator has nothing left to write, put together without a request."""

from typing import Any, NamedTuple

import msgspec

from joulie_operator.apply.pending_writes import Clock, Differences, Step, Wishes
from joulie_operator.kube.custom_resources import MANAGER, NodeTwin
from joulie_operator.observe.facts_from_objects import Node
from joulie_projections.state.state import ClusterState
from kube_api import ApiServer
from kube_builders import node
from kube_fields import Patch, Tree

SELECTOR = {"joulie.io/managed": "true"}
WISHES = Wishes(SELECTOR, status_s=60)


class Kept(dict[str, Any]):
    """Objects by name, as the operator looks at them."""

    def names(self) -> list[str]:
        return list(self)


class Settled(NamedTuple):
    """What the operator sees of it."""

    nodes: Kept
    twins: Kept


def settle(server: ApiServer, cluster_state: ClusterState, now_ns: int) -> Settled:
    """Every node of the world is there, and has what the operator would have written by now."""
    for name in cluster_state.nodes:
        server.put("nodes", node(name))
    seen = Settled(Kept(), Kept())
    seen.nodes.update({name: _read(tree, Node) for name, tree in server.all("nodes").items()})
    differences = Differences(seen.nodes, seen.twins, WISHES)
    for errand in differences.look(cluster_state, Clock(0.0, now_ns)):
        for step in errand.steps:
            _do(server, seen, errand.name, step)
            if step.what == "status":
                status = differences.status(
                    seen.twins[errand.name], cluster_state.nodes[errand.name], now_ns
                )
                said = {"status": msgspec.to_builtins(status)}
                seen.twins[errand.name] = _twin(server, errand.name, said, "status")
    return seen


def _do(server: ApiServer, seen: Settled, name: str, step: Step) -> None:
    if step.what == "spec":
        seen.twins[name] = _twin(server, name, {"spec": msgspec.to_builtins(step.spec)})
    elif step.what == "label":
        labelled = _applied(server, "nodes", name, {"metadata": {"labels": dict(step.labels)}})
        seen.nodes[name] = _read(labelled, Node)


def _twin(server: ApiServer, name: str, said: Tree, subresource: str = "") -> Any:
    return _read(_applied(server, "nodetwins", name, said, subresource), NodeTwin)


def _applied(server: ApiServer, plural: str, name: str, said: Tree, subresource: str = "") -> Tree:
    patch = Patch(MANAGER, force=True, dry_run=False, subresource=subresource)
    return server.objects.apply(server.kind(plural), "", name, said, patch)[1]


def _read(tree: Tree, shape: Any) -> Any:
    return msgspec.convert(tree, shape)
