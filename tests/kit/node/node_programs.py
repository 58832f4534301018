"""The programs of a node and of a control plane beside kube-apiserver: their configurations."""

import os
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from kube_real import BIN, ROOT, Running
from node_network import ADDRESS, FAKE_PODS, PLUGINS, PODS

IMAGES = ROOT / ".kube/images"
NODE = "n1"
DOMAIN = "cluster.local"
CGROUP = "NODE_CGROUP"  # the control group, in all hierarchies, that holds those of the pods
FAKE = {"type": "kwok"}  # the label of nodes without a kubelet
Tree = dict[str, Any]

_CONTAINERD = """\
version = 2
root = "{place}/containerd"
state = "{place}/state"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true # without the right to lower it, containers would not start
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{network}"
"""
_DNS = """\
{domain}:53 {{
  bind {address}
  errors
  kubernetes {domain} {{
    kubeconfig {kubeconfig}
  }}
}}
"""


def socket_of(place: Path) -> Path:
    return place / "containerd.sock"


def containerd(place: Path, network: Path) -> list[str]:
    config = place / "containerd.toml"
    names = {"place": place, "socket": socket_of(place), "plugins": PLUGINS, "network": network}
    config.write_text(_CONTAINERD.format(**names))
    return ["containerd", "--config", str(config)]


def kubelet(server: Running, place: Path) -> list[str]:
    return [
        str(BIN / "kubelet"),
        f"--config={_written(place / 'kubelet.yaml', _kubelet_configuration(server, place))}",
        f"--kubeconfig={server.kubeconfig('kubelet')}",
        f"--hostname-override={NODE}",
        f"--node-ip={ADDRESS}",
        f"--root-dir={place / 'kubelet'}",
        f"--cert-dir={place / 'kubelet-certificates'}",
    ]


def _kubelet_configuration(server: Running, place: Path) -> Tree:
    names = server.directory
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(names / "authority.pem")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "tlsCertFile": str(names / "kubelet.crt"),
        "tlsPrivateKeyFile": str(names / "kubelet.key"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": os.environ.get(CGROUP, "/"),
        "clusterDNS": [ADDRESS],
        "clusterDomain": DOMAIN,
        "containerRuntimeEndpoint": f"unix://{socket_of(place)}",
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "100Mi"},
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "podLogsDir": str(place / "pod-logs"),
        "resolvConf": "",
    }


def controllers(server: Running) -> list[str]:
    names = server.directory
    return [
        str(BIN / "kube-controller-manager"),
        f"--kubeconfig={server.kubeconfig('controllers')}",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={names / 'kube-apiserver.key'}",
        f"--root-ca-file={names / 'authority.pem'}",
        "--controllers=*,-node-ipam-controller",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--node-monitor-grace-period=5m",  # the machine may be slow
        f"--cert-dir={names / 'controllers-certificates'}",
    ]


def scheduler(server: Running) -> list[str]:
    """The cluster's own kube-scheduler."""
    return [
        str(BIN / "kube-scheduler"),
        f"--kubeconfig={server.kubeconfig('scheduler')}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--cert-dir={server.directory / 'scheduler-certificates'}",
    ]


def kwok(server: Running) -> list[str]:
    """Plays the kubelets of the nodes with the label of FAKE."""
    [label] = (f"{key}={value}" for key, value in FAKE.items())
    return [
        str(BIN / "kwok"),
        f"--kubeconfig={server.kubeconfig('admin')}",
        f"--manage-nodes-with-label-selector={label}",
        f"--cidr={FAKE_PODS}",
        "--node-lease-duration-seconds=200",
    ]


def proxy(server: Running, place: Path) -> list[str]:
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": PODS,
        "hostnameOverride": NODE,
        "clientConnection": {"kubeconfig": str(server.kubeconfig("proxy"))},
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    }
    return [str(BIN / "kube-proxy"), f"--config={_written(place / 'proxy.yaml', config)}"]


def dns(server: Running, place: Path) -> list[str]:
    config = place / "Corefile"
    admin = server.kubeconfig("admin")
    config.write_text(_DNS.format(domain=DOMAIN, address=ADDRESS, kubeconfig=admin))
    return [str(BIN / "coredns"), "-conf", str(config)]


def _written(path: Path, tree: Tree) -> Path:
    path.write_text(yaml.safe_dump(tree))
    return path
