"""RAPL through the kernel's powercap: energy counters and power limits of processors and memory.

https://www.kernel.org/doc/html/latest/power/powercap/powercap.html describes the files. Processors
of AMD appear under the same names. `intel-rapl-mmio` shows the package a second time, so it is
left out.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from joulie_agent.report import CapRange, Reading
from joulie_agent.sources.host import Findings, Host, Unreadable

SOURCE = "rapl"
CONTROL_TYPE = "intel-rapl"
ACCURACY = {
    "package": "a counter of the processor package; measured by the processor",
    "dram": "a counter of the memory of one package; measured, or modelled on older processors",
    "psys": "a counter of the whole platform, as the board's maker wired it",
    "part": "a counter of a part of the package; already inside the package's counter",
}


class Domain(NamedTuple):
    """One energy counter. `kind` is package, dram, psys or part."""

    name: str
    kind: str
    folder: Path
    wraps_at_uj: int  # the counter restarts at 0 after this value; 0: unknown


def domains(host: Host) -> list[Domain]:
    """The counters of this host, packages first. A part that is no longer there is left out."""
    return [domain for folder in _folders(host) if (domain := _domain(host, folder))]


def counter_uj(host: Host, domain: Domain) -> int:
    """Raises Unreadable."""
    return host.count(domain.folder / "energy_uj")


def read(host: Host, found: Findings) -> None:
    known = domains(host)
    if not known:
        found.lacks(SOURCE, _why_none(host))
    for domain in known:
        try:
            joules = counter_uj(host, domain) / 1e6
        except Unreadable as error:
            found.lacks(f"{SOURCE} {domain.name}", error)
            continue
        accuracy = ACCURACY[domain.kind]
        found.readings.append(
            Reading(source=SOURCE, component=domain.name, joules=joules, accuracy=accuracy)
        )
    read_limits(host, found)


def read_limits(host: Host, found: Findings) -> None:
    found.caps.extend(cap for domain in domains(host) if (cap := _limit(host, domain)))


def limit_file(host: Host, domain: Domain) -> Path | None:
    """The file of the long-term limit. Some processors have none."""
    for number in range(4):
        name = host.word(domain.folder / f"constraint_{number}_name")
        if name == "long_term":
            return domain.folder / f"constraint_{number}_power_limit_uw"
    return None


def _folders(host: Host) -> Iterator[Path]:
    """`intel-rapl:0` and its parts `intel-rapl:0:0`, each once."""
    linked = host.path("sys/class/powercap")
    roots = host.folders(linked) or host.folders(host.path("sys/devices/virtual/powercap"))
    seen: set[str] = set()
    for root in roots:
        if root.name.partition(":")[0] != CONTROL_TYPE:
            continue
        for folder in (root, *host.folders(root)):
            parts = [folder, *host.folders(folder)] if folder.name == CONTROL_TYPE else [folder]
            for part in parts:
                if part.name.startswith(f"{CONTROL_TYPE}:") and part.name not in seen:
                    seen.add(part.name)
                    yield part


def _domain(host: Host, folder: Path) -> Domain | None:
    name = host.word(folder / "name")
    if not name:
        return None
    wraps_at = host.maybe_count(folder / "max_energy_range_uj") or 0
    if name.startswith("package"):
        return Domain(name, "package", folder, wraps_at)
    if name == "psys":
        return Domain(name, "psys", folder, wraps_at)
    package = host.word(folder.parent / "name") or _package_of(host, folder)
    kind = "dram" if name == "dram" else "part"
    return Domain(f"{package}/{name}" if package else name, kind, folder, wraps_at)


def _package_of(host: Host, folder: Path) -> str:
    """The name of the package of `intel-rapl:0:1` where the parts are listed beside it."""
    return host.word(folder.with_name(folder.name.rpartition(":")[0]) / "name")


def _limit(host: Host, domain: Domain) -> CapRange | None:
    file = limit_file(host, domain)
    if file is None or domain.kind == "part":
        return None
    most = host.maybe_watts(file.with_name(file.name.replace("power_limit", "max_power")))
    return CapRange(
        source=SOURCE,
        component=domain.name,
        watts=host.maybe_watts(file),
        max_watts=most or None,
    )


def _why_none(host: Host) -> str:
    if not host.path("sys/class/powercap").exists():
        return "/sys/class/powercap: there is no such file; the kernel has no powercap"
    return "/sys/class/powercap has no domain of intel-rapl; a virtual machine often has none"
