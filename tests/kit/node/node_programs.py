"""The programs of a node and of a control plane beside kube-apiserver: their configurations."""

import os
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from kube_real import BIN, ROOT, Running
from node_network import ADDRESS, FAKE_PODS, PLUGINS, PODS, Node, plugin

IMAGES = ROOT / ".kube/images"
NODE = "n1"  # the first one
DOMAIN = "cluster.local"
CGROUP = "NODE_CGROUP"  # the control group, in all hierarchies, that holds those of the pods
CGROUPS = Path("/sys/fs/cgroup")
FAKE = {"type": "kwok"}  # the label of nodes without a kubelet
Tree = dict[str, Any]

_CONTAINERD = """\
version = 2
root = "{root}"
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


def socket_of(node: Node) -> Path:
    return node.place / "containerd.sock"


def root_of(node: Node) -> Path:
    """Where containerd keeps images."""
    return node.place / "containerd"


def containerd(node: Node) -> list[str]:
    config = node.place / "containerd.toml"
    names = {"root": root_of(node), "place": node.place, "socket": socket_of(node)}
    config.write_text(_CONTAINERD.format(**names, plugins=PLUGINS, network=plugin(node)))
    return node.inside("containerd", "--config", str(config))


def kubelet(server: Running, node: Node) -> list[str]:
    place = node.place
    return node.inside(
        str(BIN / "kubelet"),
        f"--config={_written(place / 'kubelet.yaml', _kubelet_configuration(server, node))}",
        f"--kubeconfig={server.kubeconfig(f'kubelet-{node.name}')}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        f"--root-dir={place / 'kubelet'}",
        f"--cert-dir={place / 'kubelet-certificates'}",
    )


def _control_group(node: Node) -> str:
    """That of the pods of a node. A kubelet deletes groups of pods that it does not know, so that
    each further one has a group of its own (.ci/in-a-network deletes it).
    """
    ours = os.environ.get(CGROUP, "/")
    if node.number == 1:
        return ours
    name = Path(ours) / f"kubepods-{node.name}"
    for hierarchy in (each for each in CGROUPS.iterdir() if each.is_dir()):
        made = hierarchy / name.relative_to("/")
        made.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):  # empty in a new group, which then has no CPU
            if (made / file).exists():
                (made / file).write_text((made.parent / file).read_text())
    return str(name)


def _kubelet_configuration(server: Running, node: Node) -> Tree:
    names = server.directory
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(names / "authority.pem")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "tlsCertFile": str(names / "kubelet.crt"),
        "tlsPrivateKeyFile": str(names / "kubelet.key"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": _control_group(node),
        "clusterDNS": [ADDRESS],
        "clusterDomain": DOMAIN,
        "containerRuntimeEndpoint": f"unix://{socket_of(node)}",
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "100Mi"},
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "podLogsDir": str(node.place / "pod-logs"),
        "resolvConf": "",
    }


def controllers(server: Running, lost_after_s: int) -> list[str]:
    """`lost_after_s` is the time without a sign of a kubelet after which its node is lost."""
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
        f"--node-monitor-grace-period={lost_after_s}s",
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


def proxy(server: Running, node: Node) -> list[str]:
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": PODS,
        "hostnameOverride": node.name,
        "clientConnection": {"kubeconfig": str(server.kubeconfig("proxy"))},
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    }
    file = _written(node.place / "proxy.yaml", config)
    return node.inside(str(BIN / "kube-proxy"), f"--config={file}")


def dns(server: Running, place: Path) -> list[str]:
    config = place / "Corefile"
    admin = server.kubeconfig("admin")
    config.write_text(_DNS.format(domain=DOMAIN, address=ADDRESS, kubeconfig=admin))
    return [str(BIN / "coredns"), "-conf", str(config)]


def _written(path: Path, tree: Tree) -> Path:
    path.write_text(yaml.safe_dump(tree))
    return path
