"""The processor time and memory of pods, by their control groups: version 2 and version 1.

The kubelet makes a group for each pod, in one for all pods; its name holds the pod's uid, with `_`
for `-` where systemd makes it. In a container the host's groups are below its mounted `/sys`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from joulie_agent.sources.host import Host, Unreadable, natural

ROOT = "sys/fs/cgroup"
CONTROLLERS = ("cpuacct", "cpu,cpuacct")  # of version 1, whose hierarchies are folders of their own
DEEPEST = 5  # folders down to a pod: a kubelet within a container has its own above
_OF_PODS = re.compile(r"kube|^(?:burstable|besteffort)$")
_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"  # of a static pod: a hash
_SOME = re.compile(r"^some .*\btotal=([0-9]{1,19})$", re.MULTILINE)
NOT_COUNTED = -1
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
    return _field(host, group / "cpu.stat", "usage_usec") * 1000


class Waited(NamedTuple):
    """For how long some processes of a pod waited for each so far, in microseconds."""

    cpu: int = NOT_COUNTED
    memory: int = NOT_COUNTED
    io: int = NOT_COUNTED


def is_of_version_1(group: Path) -> bool:
    return (group / "cpuacct.usage").exists()


def working_set(host: Host, group: Path) -> int:
    """The memory that the kernel cannot take back at once, in bytes, as the kubelet counts it.
    Raises Unreadable."""
    if is_of_version_1(group):
        group = _of_memory(host, group)
        used, cache = host.count(group / "memory.usage_in_bytes"), "total_inactive_file"
    else:
        used, cache = host.count(group / "memory.current"), "inactive_file"
    return max(0, used - _field(host, group / "memory.stat", cache))


def waited_us(host: Host, group: Path) -> Waited:
    """By the kernel's pressure stall information, which version 1 does not have."""
    return Waited(*(_waited_us(host, group / f"{name}.pressure") for name in Waited._fields))


def _waited_us(host: Host, path: Path) -> int:
    found = _SOME.search(host.maybe(path))
    total = natural(found[1]) if found else None
    return NOT_COUNTED if total is None else total


def _of_memory(host: Host, group: Path) -> Path:
    """In version 1 each controller has a hierarchy of its own, with the same folders."""
    _, *below = group.relative_to(host.path(ROOT)).parts
    return host.path(ROOT, "memory", *below)


def _field(host: Host, path: Path, name: str) -> int:
    for line in host.text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and (number := natural(value)) is not None:
            return number
    raise Unreadable(f"{host.path_on_host(path)}: it has no {name}")


def _roots(host: Host) -> Iterator[Path]:
    yield from (host.path(ROOT, name) for name in CONTROLLERS)
    yield host.path(ROOT)


def _below(host: Host, folder: Path, deepest: int) -> Iterator[tuple[str, Path]]:
    for each in host.folders(folder, links=False):  # cgroupfs has none
        if pod := _POD.search(each.name):
            yield pod[1].replace("_", "-"), each
        elif deepest > 1 and _OF_PODS.search(each.name):
            yield from _below(host, each, deepest - 1)
