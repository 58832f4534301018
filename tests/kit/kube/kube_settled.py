"""Builds a cluster without pending writes of the operator, without any request."""

from typing import Any, NamedTuple

import msgspec

from joulie_operator.desired.pending_writes import Now, WriteOptions, WritePlanner, WriteStep
from joulie_operator.facts.facts_from_objects import Node
from joulie_operator.resources.custom_resources import MANAGER, NodeTwin
from joulie_projections.state.state import ClusterState
from kube_api import ApiServer
from kube_builders import node
from kube_fields import Patch, Tree

SELECTOR = {"joulie.io/managed": "true"}
OPTIONS = WriteOptions(SELECTOR, status_s=60)


class Objects(dict[str, Any]):
    """Objects by name, as the operator reads them."""

    def names(self) -> list[str]:
        return list(self)


class Settled(NamedTuple):
    """The objects that the operator reads."""

    nodes: Objects
    twins: Objects


def settle(server: ApiServer, cluster_state: ClusterState, now_ns: int) -> Settled:
    """Creates every node of the state, with everything that the operator writes."""
    for name in cluster_state.nodes:
        server.put("nodes", node(name))
    seen = Settled(Objects(), Objects())
    seen.nodes.update({name: _read(tree, Node) for name, tree in server.all("nodes").items()})
    planner = WritePlanner(seen.nodes, seen.twins, OPTIONS)
    for at_s in (0.0, 1.0, 1000.0):  # the classes, the labels and caps, the whole statuses
        for name, steps, _ in planner.pending_writes(cluster_state, Now(at_s, now_ns)):
            for step in steps:
                _apply_step(server, seen, name, step)
                if step.what == "status":
                    status = planner.status(seen.twins[name], cluster_state.nodes[name], now_ns)
                    body = {"status": msgspec.to_builtins(status)}
                    seen.twins[name] = _twin(server, name, body, "status")
    return seen


def _apply_step(server: ApiServer, seen: Settled, name: str, step: WriteStep) -> None:
    if step.what == "spec":
        seen.twins[name] = _twin(server, name, {"spec": msgspec.to_builtins(step.spec)})
    elif step.what == "label":
        labelled = _applied(server, "nodes", name, {"metadata": {"labels": dict(step.labels)}})
        seen.nodes[name] = _read(labelled, Node)


def _twin(server: ApiServer, name: str, body: Tree, subresource: str = "") -> Any:
    return _read(_applied(server, "nodetwins", name, body, subresource), NodeTwin)


def _applied(server: ApiServer, plural: str, name: str, body: Tree, subresource: str = "") -> Tree:
    patch = Patch(MANAGER, force=True, dry_run=False, subresource=subresource)
    return server.objects.apply(server.kind(plural), "", name, body, patch)[1]


def _read(tree: Tree, shape: Any) -> Any:
    return msgspec.convert(tree, shape)
