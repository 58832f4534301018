"""The processor time of pods, by their control groups: version 2 and version 1.

The kubelet makes a group for each pod, in one for all pods; its name holds the pod's uid, with `_`
for `-` where systemd makes it. In a container the host's groups are below its mounted `/sys`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from joulie_agent.sources.host import Host, Unreadable, natural

ROOT = "sys/fs/cgroup"
CONTROLLERS = ("cpuacct", "cpu,cpuacct")  # of version 1, whose hierarchies are folders of their own
DEEPEST = 5  # folders down to a pod: a kubelet within a container has its own above
_OF_PODS = re.compile(r"kube|^(?:burstable|besteffort)$")
_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"  # of a static pod: a hash
_POD = re.compile(rf"(?:^|-)pod({_UID})(?:\.slice)?\Z")


def pod_groups(host: Host) -> dict[str, Path]:
    """The group of each pod by its uid."""
    for root in _roots(host):
        found = dict(_below(host, root, DEEPEST))
        if found:
            return found
    return {}


def used_ns(host: Host, group: Path) -> int:
    """The processor time that a pod has used. Raises Unreadable."""
    old = group / "cpuacct.usage"
    if old.exists():
        return host.count(old)
    stat = group / "cpu.stat"
    for line in host.text(stat).splitlines():
        name, _, value = line.partition(" ")
        if name == "usage_usec" and (used_us := natural(value)) is not None:
            return used_us * 1000
    raise Unreadable(f"{host.path_on_host(stat)}: it has no usage_usec")


def _roots(host: Host) -> Iterator[Path]:
    yield from (host.path(ROOT, name) for name in CONTROLLERS)
    yield host.path(ROOT)


def _below(host: Host, folder: Path, deepest: int) -> Iterator[tuple[str, Path]]:
    for each in host.folders(folder, links=False):  # cgroupfs has none
        if pod := _POD.search(each.name):
            yield pod[1].replace("_", "-"), each
        elif deepest > 1 and _OF_PODS.search(each.name):
            yield from _below(host, each, deepest - 1)
