"""What pods cost the programs that run: the CPU of windows with pods, less that of windows without.

Components also work at rest, and more of that work is done at once on a busy machine. So both kinds
of windows follow each other on a machine that is not busy. Work that comes once in minutes, as a
plan does, falls into some windows of either kind: figures are medians of all windows, and the error
of the difference is stated.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from process_usage import cpu_s
from report import FlawedTable

# Columns of a table.
CPU, ERROR, REST = "CPU ms per pod", "its standard error", "at rest, % of a core"
ERRORS = 2.0  # standard errors above which pods are known to cost something
OF_A_MEDIAN = 1.2533 * 1.4826  # its standard error, of the median deviation in normal noise


class Window(NamedTuple):
    """The CPU of each program in seconds, with pods and in a window as long without."""

    with_pods: Mapping[str, float]
    without: Mapping[str, float]
    lasted_s: float
    pods: int

    def per_pod(self, names: Collection[str]) -> float:
        """In milliseconds, of these programs together."""
        return sum(self.with_pods[n] - self.without[n] for n in names) * 1000 / self.pods

    def at_rest(self, names: Collection[str]) -> float:
        """In percent of a core."""
        return sum(self.without[n] for n in names) * 100 / self.lasted_s


async def used_during(work: Callable[[], Awaitable[None]]) -> dict[str, float]:
    """CPU per program."""
    before = cpu_s()
    await work()
    return {name: used - before.get(name, 0.0) for name, used in cpu_s().items()}


def per_pod(windows: Sequence[Window], names: Collection[str]) -> float:
    return median(window.per_pod(names) for window in windows)


def cost_of(windows: Sequence[Window], names: Collection[str]) -> dict[str, float]:
    """The columns of these programs together, of three windows or more."""
    cost = per_pod(windows, names)
    deviation = median(abs(each.per_pod(names) - cost) for each in windows)
    return {
        CPU: cost,
        ERROR: OF_A_MEDIAN * deviation / len(windows) ** 0.5,
        REST: median(each.at_rest(names) for each in windows),
    }


def require_cost(of: str, together: Mapping[str, float]) -> None:
    """Raises FlawedTable for pods that cost nothing beyond the error."""
    if together[CPU] <= ERRORS * together[ERROR]:
        raise FlawedTable(
            f"{of}: all of Joulie took {together[CPU]:.2f} ms of CPU per pod, and the standard "
            f"error of that is {together[ERROR]:.2f}. Nothing was printed. Give more --windows, "
            "or measure on a quiet machine."
        )
