"""Counts what each component does in one thread: calls, allocations, processor time.

A component is the process in whose context a handle of the loop runs. Code of the loop, of the
broker in memory and of the test kits runs in these contexts, too, and does not count as calls.
"""

import asyncio
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Protocol

from virtual_time import RUNNING, VirtualLoop

LEFT_OUT = (str(Path(__file__).parents[1]), str(Path(asyncio.__file__).parent))
_cpu_ns = time.thread_time_ns  # before a run replaces the clocks


class Meter(Protocol):
    """What counts, by the component that runs."""

    def enter(self, component: str) -> None: ...

    def leave(self, component: str) -> None: ...


class CpuMeter:
    """Processor time of each component."""

    def __init__(self) -> None:
        self.ns = defaultdict[str, int](int)
        self.is_on = False
        self._began = 0

    def enter(self, component: str) -> None:
        self._began = _cpu_ns()

    def leave(self, component: str) -> None:
        if self.is_on:
            self.ns[component] += _cpu_ns() - self._began


class CallMeter:
    """Calls of Python functions, and allocations if there is a counter of them.

    `planted` makes a component do a share more of both, for the tests of this meter.
    """

    def __init__(self, allocations: Any = None, planted: Mapping[str, float] | None = None) -> None:
        self.calls = defaultdict[str, int](int)
        self.numbers: dict[str, int] = {"": 0}
        self._allocations = allocations
        self._planted = planted or {}
        self._owed = defaultdict[str, float](float)
        self._counts: dict[CodeType, bool] = {}
        self._n = 0
        self.is_on = False

    def allocated(self, component: str) -> dict[str, float]:
        """Allocations, and their bytes."""
        if self._allocations is None:
            return {}
        count, size = self._allocations.counts(self.numbers.get(component, 0))
        return {"allocations": count, "KiB allocated": size / 1024}

    def enter(self, component: str) -> None:
        if not self.is_on or not component:
            return
        self._n = 0
        if self._allocations is not None:
            number = self.numbers.setdefault(component, len(self.numbers))
            self._allocations.count_for(number)
            self._allocations.turn(1)
        sys.setprofile(self._profile)

    def leave(self, component: str) -> None:
        if not self.is_on or not component:
            return
        if component in self._planted:
            self._plant(component, self._n)
        sys.setprofile(None)
        if self._allocations is not None:
            self._allocations.turn(0)
        self.calls[component] += self._n

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            code = frame.f_code
            counts = self._counts.get(code)
            if counts is None:
                name = code.co_filename
                counts = self._counts[code] = not name.startswith(LEFT_OUT)
            self._n += counts

    def _plant(self, component: str, calls: int) -> None:
        self._owed[component] += calls * self._planted[component]
        while self._owed[component] >= 1:
            self._owed[component] -= 1
            self._n += 1
            bytearray(48)


def _metered(handle: Any, run: Callable[[], None]) -> None:
    process, meter = handle._context.get(RUNNING), handle._loop.meter
    component = process.name if process is not None else ""
    meter.enter(component)
    try:
        run()
    finally:
        meter.leave(component)


class _Handle(asyncio.Handle):
    __slots__ = ()

    def _run(self) -> None:
        _metered(self, super()._run)


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ()

    def _run(self) -> None:
        _metered(self, super()._run)


class CountingLoop(VirtualLoop):
    """Switches a meter to the component that runs."""

    handle = _Handle
    timer = _TimerHandle

    def __init__(self, rng: random.Random, meter: Meter) -> None:
        super().__init__(rng)
        self.meter = meter
