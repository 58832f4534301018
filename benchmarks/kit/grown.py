"""The drill of pods on a cluster of some size, with the CPU of its components."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from unittest import mock

from counting import CpuMeter
from drill import Size, drilled
from drill_load import Client
from joulie_operator.service import Operator

PLAN, VERBS = "plan", ("filter", "prioritize")
MS, PER_CENT = 1e-6, 1 / 10  # from ns; from ms in a second to a hundredth of a core
_cpu_ns = time.thread_time_ns  # before the drill replaces the clocks


class Grown(NamedTuple):
    per_pod: Mapping[str, float]  # CPU ms of each component
    at_rest: Mapping[str, float]  # percent of a core
    ms: Mapping[str, Sequence[float]]  # CPU of each answer by its verb, and of each plan


def measure(nodes: int, pods: int) -> Grown:
    spent = defaultdict[str, list[float]](list)
    with (
        mock.patch.object(Operator, "decide", _timed(Operator.decide, lambda _: PLAN, spent)),
        mock.patch.object(Client, "_receive", _timed(Client._receive, _verb_of, spent)),
    ):
        found = drilled(Size(nodes, pods, min(pods, 100)), CpuMeter())
    per_second, per_pod = found.per_second(), found.per_pod(pods)
    names = [name for name, counts in per_pod.items() if "CPU ms" in counts]
    return Grown(
        {name: per_pod[name]["CPU ms"] for name in names},
        {name: per_second[name]["CPU ms"] * PER_CENT for name in names},
        dict(spent),
    )


def _timed(
    call: Callable[..., Any],
    name_of: Callable[[tuple[Any, ...]], str],
    spent: Mapping[str, list[float]],
) -> Callable[..., Any]:
    def timed(*args: Any) -> Any:
        began = _cpu_ns()
        result = call(*args)
        spent[name_of(args)].append((_cpu_ns() - began) * MS)
        return result

    return timed


def _verb_of(args: tuple[Any, ...]) -> str:
    """Of `Client._receive`, which hands over a whole request and gets the reply inside."""
    line: bytes = args[1].partition(b" HTTP/")[0]
    return line.rpartition(b"/")[2].decode()
