"""A network of nodes and pods on this machine, in a network of its own (.ci/in-a-network)."""

import ipaddress
import json
import os
import socket
import subprocess
from pathlib import Path
from typing import NamedTuple

from kube_real import SERVICES

ADDRESS = "10.89.0.1"  # of the control plane and the first node
PODS = "10.88.0.0/16"  # of all nodes
FAKE_PODS = "10.90.0.0/16"  # of nodes without a kubelet
PLUGINS = "/usr/lib/cni"
PLACE = "NODE_PLACE"
NAMESPACES = Path("/run/netns")
CARD = "node0"  # the network card of each node


class NoNetworkOfItsOwn(Exception):
    """Why a node cannot run here: it would listen on the interfaces of this machine."""


class Node(NamedTuple):
    """A node: its directory and its part of the network. The first one has that of the control
    plane, each other one a network namespace.
    """

    number: int
    place: Path

    @property
    def name(self) -> str:
        return f"n{self.number}"

    @property
    def address(self) -> str:
        return str(ipaddress.ip_address(ADDRESS) + self.number - 1)

    @property
    def pods(self) -> str:
        return f"10.88.{self.number}.0/24"

    def inside(self, *command: str) -> list[str]:
        """The command, in the network of the node. `ip netns exec` hides the control groups."""
        if self.number == 1:
            return [*command]
        return ["nsenter", f"--net={NAMESPACES / self.name}", "--", *command]


def place() -> Path:
    """The directory of the cluster."""
    found = os.environ.get(PLACE)
    if not found or {name for _, name in socket.if_nameindex()} != {"lo"}:
        raise NoNetworkOfItsOwn("run it with `make cluster`")
    return Path(found)


def nodes(directory: Path, number: int) -> list[Node]:
    """Nodes whose network cards are plugged into one switch, with routes to the pods of all."""
    NAMESPACES.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(NAMESPACES)], check=True)  # goes with us
    _ip("link add switch type bridge")
    _ip("link set switch up")
    made = [Node(each, directory / f"n{each}") for each in range(1, number + 1)]
    for node in made:
        node.place.mkdir()
        _plugged(node)
        for other in made:
            if other != node:
                _run(node, f"ip route add {other.pods} via {other.address}")
    return made


def _plugged(node: Node) -> None:
    port = f"port{node.number}"
    if node.number > 1:
        _ip(f"netns add {node.name}")
    _ip(f"link add {port} master switch type veth peer name card{node.number}")
    _ip(f"link set {port} up")
    where = f"netns {node.name} " if node.number > 1 else ""
    _ip(f"link set card{node.number} {where}name {CARD}")
    for words in (
        "ip link set lo up",
        f"ip address add {node.address}/24 dev {CARD}",
        f"ip link set {CARD} up",
        f"ip route add {SERVICES} dev {CARD}",  # kube-proxy changes the address of what has a route
        "sysctl -q -w net.ipv4.ip_forward=1",
    ):
        _run(node, words)


def plugin(node: Node) -> Path:
    """The directory of what containerd reads to connect pods with the node."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(node.place / "addresses"),
    }
    pods = {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": ipam}]}
    (node.place / "network").mkdir(exist_ok=True)
    (node.place / "network/pods.conflist").write_text(json.dumps(pods))
    return node.place / "network"


def _ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


def _run(node: Node, words: str) -> None:
    subprocess.run(node.inside(*words.split()), check=True)
