"""Processors, memory and maker of the machine, from /proc and the firmware's tables."""

import re

from joulie_agent.report import Cpu, Hardware
from joulie_agent.sources.host import Findings, Host

_FIELD = re.compile(r"^(?P<key>[^:\n]+?)\s*:\s*(?P<value>.*)$", re.MULTILINE)


def read(host: Host, found: Findings) -> Hardware:
    listed = host.maybe(host.path("proc/cpuinfo"))
    if not listed:
        found.lacks("cpuinfo", "/proc/cpuinfo cannot be read; the processors are unknown")
    memory = _memory_bytes(host.maybe(host.path("proc/meminfo")))
    if not memory:
        found.lacks("meminfo", "/proc/meminfo has no MemTotal; the memory is unknown")
    names = [
        host.maybe(host.path("sys/class/dmi/id", name)) for name in ("sys_vendor", "product_name")
    ]
    return Hardware(
        cpu=_cpu(listed),
        memory_bytes=memory,
        machine=" ".join(name for name in names if name),
        virtual=_is_virtual(listed),
    )


def _cpu(listed: str) -> Cpu:
    """x86 lists a package and a core for each thread; other machines list threads only."""
    blocks = [_fields(block) for block in listed.split("\n\n") if "processor" in block]
    if not blocks:
        return Cpu()
    packages = {block.get("physical id", "0") for block in blocks}
    cores = {
        (block.get("physical id", "0"), block.get("core id", str(number)))
        for number, block in enumerate(blocks)
    }
    first = blocks[0]
    model = first.get("model name") or first.get("Model") or first.get("cpu model") or ""
    return Cpu(
        model=" ".join(model.split()), sockets=len(packages), cores=len(cores), threads=len(blocks)
    )


def _fields(block: str) -> dict[str, str]:
    return {match["key"]: match["value"] for match in _FIELD.finditer(block)}


def _memory_bytes(listed: str) -> int:
    found = re.search(r"^MemTotal:\s+(\d+) kB", listed, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _is_virtual(listed: str) -> bool:
    flags = _fields(listed).get("flags", "")
    return "hypervisor" in flags.split()
