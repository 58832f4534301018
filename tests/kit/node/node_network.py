"""A network of pods on this machine, in a network of its own (.ci/in-a-network)."""

import json
import os
import socket
import subprocess
from pathlib import Path

from kube_real import SERVICES

ADDRESS = "10.89.0.1"  # of the node
PODS = "10.88.0.0/16"
FAKE_PODS = "10.90.0.0/16"  # of nodes without a kubelet
PLUGINS = "/usr/lib/cni"
PLACE = "NODE_PLACE"


class NoNetworkOfItsOwn(Exception):
    """Why a node cannot run here: it would listen on the interfaces of this machine."""


def place() -> Path:
    """The directory of the node."""
    found = os.environ.get(PLACE)
    if not found or {name for _, name in socket.if_nameindex()} != {"lo"}:
        raise NoNetworkOfItsOwn("run it with `make cluster`")
    return Path(found)


def make(directory: Path) -> Path:
    """The address of the node, and the directory with the network of its pods."""
    for words in (
        "link set lo up",
        "link add node0 type veth peer name node1",
        f"address add {ADDRESS}/24 dev node0",
        "link set node0 up",
        "link set node1 up",
        f"route add {SERVICES} dev node0",  # kube-proxy changes the address of what takes a route
    ):
        subprocess.run(["ip", *words.split()], check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": PODS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(directory / "addresses"),
    }
    pods = {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": ipam}]}
    (directory / "network").mkdir()
    (directory / "network/pods.conflist").write_text(json.dumps(pods))
    return directory / "network"
