"""For how long the main threads of processes waited for a CPU, and when processes were stopped or
gone, as the kernel says."""

import bisect
import time
from collections.abc import Iterable, Mapping
from pathlib import Path


class CpuWaits:
    def __init__(self) -> None:
        self.pids: Mapping[str, int] = {}
        self._moments: list[float] = []
        self._waited: list[dict[str, float]] = []  # seconds since the start of the process
        self._stopped: list[frozenset[str]] = []  # or gone

    def sample(self) -> None:
        if not self.pids:
            return  # the time before the processes are known counts from the first sample
        self._moments.append(time.monotonic())
        self._waited.append({name: _waited_s(pid) for name, pid in self.pids.items()})
        self._stopped.append(frozenset(n for n, pid in self.pids.items() if not is_running(pid)))

    def stopped_between(self, began: float, ended: float) -> frozenset[str]:
        """The processes that were stopped or gone at some moment."""
        first = max(0, bisect.bisect_right(self._moments, began) - 1)
        last = bisect.bisect_left(self._moments, ended) + 1
        return frozenset[str]().union(*self._stopped[first:last])

    def between(self, began: float, ended: float, names: Iterable[str]) -> float:
        """Of all these processes, from the sample before `began` to the one after `ended`."""
        if not self._moments:
            return 0.0
        first = max(0, bisect.bisect_right(self._moments, began) - 1)
        last = min(len(self._moments) - 1, bisect.bisect_left(self._moments, ended))
        before, after = self._waited[first], self._waited[last]
        named = [name for name in names if name in before and name in after]
        # A process that was started again counts from 0.
        return sum(max(0.0, after[name] - before[name]) for name in named)


def _waited_s(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def is_running(pid: int) -> bool:
    """Neither stopped by a signal nor gone."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "TtZX"
