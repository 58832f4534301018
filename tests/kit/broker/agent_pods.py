"""Pods of agents on a real API server, and the tokens that it makes for them."""

from typing import Any

import msgspec

from kube_builders import schedulable
from kube_conditions import NODES
from kube_real import Running

Tree = dict[str, Any]
SPACE, ACCOUNT, AUDIENCE = "default", "joulie-agent", "joulie-broker"
ACCOUNTS = f"/api/v1/namespaces/{SPACE}/serviceaccounts"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
USERNAME = f"system:serviceaccount:{SPACE}:{ACCOUNT}"


async def account(server: Running, name: str = ACCOUNT) -> None:
    await server.put(ACCOUNTS, {"metadata": {"name": name}})


async def agent_token(
    server: Running, node: str, *, audience: str = AUDIENCE, of: str = ACCOUNT
) -> str:
    """As the kubelet asks for it: bound to the agent's pod on this node. Both are made."""
    await server.put(NODES, schedulable(node))
    name = f"{of}-{node}"
    containers = [{"name": "agent", "image": "joulie"}]
    spec = {"nodeName": node, "serviceAccountName": of, "containers": containers}
    made = await server.api.create(PODS, {"metadata": {"name": name}, "spec": spec})
    uid = msgspec.json.decode(made)["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}
    return await token(server, of, {"audiences": [audience], "boundObjectRef": bound})


async def token(server: Running, of: str, spec: Tree) -> str:
    made = await server.api.create(f"{ACCOUNTS}/{of}/token", {"spec": spec})
    found: str = msgspec.json.decode(made)["status"]["token"]
    return found
