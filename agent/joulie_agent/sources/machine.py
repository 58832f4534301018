"""Processors, memory and maker of the machine, from /proc and the firmware's tables."""

import re

from joulie_agent.report import Cpu, Hardware
from joulie_agent.sources.host import Findings, Host
from joulie_bus.events.bounds import MOST_BYTES, WORD, has_control


def read(host: Host, found: Findings) -> Hardware:
    listed = host.maybe(host.path("proc/cpuinfo"))
    if not listed:
        found.lacks("cpuinfo", "/proc/cpuinfo cannot be read; the processors are unknown")
    memory = _memory_bytes(host.maybe(host.path("proc/meminfo")))
    if not memory:
        found.lacks("meminfo", "/proc/meminfo has no MemTotal; the memory is unknown")
    names = [
        host.word(host.path("sys/class/dmi/id", name)) for name in ("sys_vendor", "product_name")
    ]
    return Hardware(
        cpu=_cpu(listed, found),
        memory_bytes=memory,
        machine=" ".join(name for name in names if name),
        virtual=_is_virtual(listed),
    )


def _cpu(listed: str, found: Findings) -> Cpu:
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
    model = " ".join(model.split())
    if len(model) > WORD or has_control(model):
        found.lacks("cpuinfo", f"{model[:40]!a} is no name of a model; the model is unknown")
        model = ""
    return Cpu(model=model, sockets=len(packages), cores=len(cores), threads=len(blocks))


def _fields(block: str) -> dict[str, str]:
    lines = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, colon, value in lines if colon}


def _memory_bytes(listed: str) -> int:
    found = re.search(r"^MemTotal:[ \t]+([0-9]{1,19}) kB", listed, re.MULTILINE)
    memory = int(found[1]) * 1024 if found else 0
    return memory if memory <= MOST_BYTES else 0


def _is_virtual(listed: str) -> bool:
    flags = _fields(listed).get("flags", "")
    return "hypervisor" in flags.split()
