"""The one place where a run replaces the clocks and the random numbers of the process.

Components read `time`, `secrets` and the id of their machine in many places, also as default
arguments. A run replaces all of them, and puts them back: each process then reads the clocks of its
own machine, and ids come from the seed. What takes processor time takes no virtual time.
"""

import contextlib
import gc
import random
import secrets
import sys
import time
from collections.abc import Generator, Iterator
from types import FunctionType
from typing import Any
from unittest import mock

from simulated_database import DatabaseServer
from virtual_time import RUNNING, VirtualLoop

from bus_kit import NOON, SECOND
from joulie_projections.store import monotonic, store

_KEPT = {time.monotonic: "monotonic", time.time_ns: "time_ns", time.time: "time"}


class Clocks:
    """Of the machine whose process reads them; the wall clock of the simulation shows no skew."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        process = RUNNING.get()
        return self._loop.time() + (process.uptime_s if process else 0.0)

    def time(self) -> float:
        return self.time_ns() / SECOND

    def time_ns(self) -> int:
        process = RUNNING.get()
        return self.true_ns(process.skew_s if process else 0.0)

    def true_ns(self, skew_s: float = 0.0) -> int:
        return NOON + int((self._loop.cluster_s() + skew_s) * SECOND)

    def running_ns(self, skew_s: float) -> int:
        """Without the time that was skipped, in which no poll ran."""
        return NOON + int((self._loop.time() + skew_s) * SECOND)


def _machine() -> str:
    process = RUNNING.get()
    return process.machine if process else "simulation"


@contextlib.contextmanager
def replaced(
    clocks: Clocks, rng: random.Random, server: DatabaseServer
) -> Generator[None, None, None]:
    with contextlib.ExitStack() as stack:
        for owner, name, other in _replacements(clocks, rng, server):
            stack.enter_context(mock.patch.object(owner, name, other))
        yield


def _replacements(
    clocks: Clocks, rng: random.Random, server: DatabaseServer
) -> Iterator[tuple[object, str, object]]:
    for name in ("monotonic", "time", "time_ns"):
        yield time, name, getattr(clocks, name)
    for name in ("perf_counter", "thread_time", "process_time"):
        yield time, name, clocks.monotonic
    yield secrets, "token_hex", lambda size=32: rng.randbytes(size).hex()
    yield monotonic, "boot_id", lambda *_: _machine()
    # As PostgreSQL has them; SQLite takes the clock of its process, and has no timeline.
    # Leases are renewed by polls.
    yield store, "clock_of", lambda _: server.lease_clock()
    yield store, "_timeline", lambda _: server.timeline
    # Extenders collect garbage when they start, which takes longer here than the whole run.
    yield gc, "collect", lambda *_: 0
    yield gc, "freeze", lambda: None
    for function in _with_clocks():
        given = function.__defaults__ or ()
        fresh = tuple(getattr(clocks, _KEPT[one]) if _is_clock(one) else one for one in given)
        yield function, "__defaults__", fresh


def _is_clock(value: object) -> bool:
    return any(value is clock for clock in _KEPT)


def _with_clocks() -> list[FunctionType]:
    """The functions of Joulie with a clock as a default argument."""
    return [each for each in _functions() if any(map(_is_clock, each.__defaults__ or ()))]


def _functions() -> Iterator[FunctionType]:
    for name, module in sorted(sys.modules.items()):
        if name.startswith("joulie_"):
            for value in list(vars(module).values()):
                yield from _functions_of(value, name)


def _functions_of(value: Any, module: str) -> Iterator[FunctionType]:
    if getattr(value, "__module__", "") != module:
        return
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, type):
        yield from (each for each in vars(value).values() if isinstance(each, FunctionType))
