"""How long the processors have been busy, from /proc/stat."""

from typing import NamedTuple

from joulie_agent.sources.host import Host, Unreadable, natural

_IDLE, _IOWAIT, _STEAL, _FIELDS = 3, 4, 7, 8  # later fields are parts of the first two


class CpuTime(NamedTuple):
    """Ticks of all processors since the start. `busy` lacks what the hypervisor took."""

    busy: int
    total: int


def read(host: Host) -> CpuTime:
    """Raises Unreadable."""
    path = host.path("proc/stat")
    first = host.text(path).split("\n", 1)[0].split()
    ticks = [number for each in first[1:] if (number := natural(each)) is not None]
    if first[:1] != ["cpu"] or len(ticks) <= _IOWAIT:
        raise Unreadable(f"{host.path_on_host(path)}: the first line is no sum of processor times")
    ticks = (ticks + [0] * _FIELDS)[:_FIELDS]
    total = sum(ticks)
    return CpuTime(total - ticks[_IDLE] - ticks[_IOWAIT] - ticks[_STEAL], total)
