"""Pods of agents on a real API server, and the tokens that it makes for them."""

from typing import Any

import msgspec

from kube_builders import schedulable
from kube_conditions import NODES
from kube_real import Running

Tree = dict[str, Any]
SPACE, ACCOUNT, AUDIENCE = "default", "joulie-agent", "joulie-broker"
USERNAME = f"system:serviceaccount:{SPACE}:{ACCOUNT}"


def _accounts(space: str) -> str:
    return f"/api/v1/namespaces/{space}/serviceaccounts"


async def account(server: Running, name: str = ACCOUNT, *, space: str = SPACE) -> None:
    await server.put(_accounts(space), {"metadata": {"name": name}})


async def agent_token(
    server: Running,
    node: str,
    *,
    audience: str = AUDIENCE,
    of: str = ACCOUNT,
    space: str = SPACE,
) -> str:
    """As the kubelet asks for it: bound to the agent's pod on this node. Both are made."""
    await server.put(NODES, schedulable(node))
    name = f"{of}-{node}"
    containers = [{"name": "agent", "image": "joulie"}]
    spec = {"nodeName": node, "serviceAccountName": of, "containers": containers}
    pod = {"metadata": {"name": name}, "spec": spec}
    made = await server.api.create(f"/api/v1/namespaces/{space}/pods", pod)
    uid = msgspec.json.decode(made)["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}
    return await token(server, of, {"audiences": [audience], "boundObjectRef": bound}, space)


async def token(server: Running, of: str, spec: Tree, space: str = SPACE) -> str:
    made = await server.api.create(f"{_accounts(space)}/{of}/token", {"spec": spec})
    found: str = msgspec.json.decode(made)["status"]["token"]
    return found
