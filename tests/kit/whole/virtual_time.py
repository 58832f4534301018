"""An event loop whose time is virtual: it jumps to the next timer when nothing is ready.

In a quiet hour nearly all timers are those of polls, and each finds what it found before. The time
up to the next event is then skipped: timers of events come nearer, those of polls keep their
distance, and only wall clocks move on.

The loop has no thread and no socket. What would run in a thread runs on the loop after a delay. A
task belongs to the process in whose context it was created; a frozen process does not run, and a
killed one reaches nothing outside of itself.
"""

import asyncio
import heapq
import random
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, ContextVar, copy_context
from typing import Any, ClassVar, TypeVar

from joulie_projections.fold.manifest import CODE_VERSION

T = TypeVar("T")
RUNNING: "ContextVar[Process | None]" = ContextVar("RUNNING", default=None)
POLLS: ContextVar[bool] = ContextVar("POLLS", default=False)  # of tasks outside of any process
RESOLUTION_S = 1e-9
THREAD_S = 0.0005
LONGEST_POLL_S = 12.0  # between two looks at something; a longer timer of a process is an event


class Stuck(Exception):
    """Tasks wait, and nothing will ever wake them."""


class Process:
    """One life of a component. Its clocks differ from those of other machines."""

    def __init__(self, name: str, machine: str, uptime_s: float, skew_s: float) -> None:
        self.name = name
        self.machine = machine
        self.uptime_s = uptime_s  # of the machine, when the run begins
        self.skew_s = skew_s  # of its wall clock
        self.thread_s = THREAD_S  # on average, for a call to get to its thread, and back
        self.began_at = asyncio.get_running_loop().time()
        self.is_dead = False
        self.makes_events = False  # its timers are no polls
        self.fold_version = CODE_VERSION  # of a projector
        self.context = copy_context()
        self.context.run(RUNNING.set, self)
        self._held: list[asyncio.Handle] | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, context=self.context)
        self._tasks = [each for each in self._tasks if not each.done()]
        self._tasks.append(task)
        return task

    def kill(self) -> None:
        """As SIGKILL does. The tasks unwind, and can neither send, write nor read meanwhile."""
        self.is_dead = True
        self.thaw()
        for task in self._tasks:
            task.cancel()

    def freeze(self) -> None:
        """As SIGSTOP does."""
        if not self.is_dead and self._held is None:
            self._held = []

    def thaw(self) -> None:
        held, self._held = self._held or [], None
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.run_soon(held)

    @property
    def is_frozen(self) -> bool:
        return self._held is not None

    def holds(self, handle: asyncio.Handle) -> bool:
        if self._held is None:
            return False
        self._held.append(handle)
        return True


def require_alive() -> None:
    """Ends a call of a killed process: nothing that it does may be seen any more."""
    process = RUNNING.get()
    if process is not None and process.is_dead:
        raise asyncio.CancelledError


class _Handle(asyncio.Handle):
    __slots__ = ()

    def _run(self) -> None:
        process = self._context.get(RUNNING)  # type: ignore[attr-defined]
        if process is None or not process.holds(self):
            super()._run()


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ()

    def _run(self) -> None:
        process = self._context.get(RUNNING)  # type: ignore[attr-defined]
        if process is None or not process.holds(self):
            super()._run()


class _Selector:
    """Instead of waiting for sockets, moves the time."""

    def __init__(self) -> None:
        self.now = 0.0

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Stuck
        self.now += timeout
        return []


def _is_event(timer: asyncio.TimerHandle, now: float) -> bool:
    context: Context = timer._context  # type: ignore[attr-defined]
    process = context.get(RUNNING)
    if process is None:
        return not context.get(POLLS)
    return process.makes_events or timer.when() - now > LONGEST_POLL_S


class VirtualLoop(asyncio.BaseEventLoop):
    handle: ClassVar[type[asyncio.Handle]] = _Handle
    timer: ClassVar[type[asyncio.TimerHandle]] = _TimerHandle

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._selector = _Selector()
        self._clock_resolution = RESOLUTION_S
        self._rng = rng
        self._skipped_s = 0.0
        self._skips: list[tuple[float, float]] = []  # when, and how much

    def time(self) -> float:
        return self._selector.now

    def cluster_s(self) -> float:
        """With the time that was skipped: what wall clocks show."""
        return self._selector.now + self._skipped_s

    def skipped_since(self, moment: float) -> float:
        """What an age that reaches back to this moment leaves out of the time by wall clocks."""
        return sum(skipped_s for at, skipped_s in self._skips if at >= moment)

    def skip(self, lead_s: float) -> None:
        """Skips the time until so long before the next event."""
        scheduled: list[asyncio.TimerHandle] = vars(self)["_scheduled"]
        timers = (each for each in scheduled if not each.cancelled())
        events = [each for each in timers if _is_event(each, self.time())]
        next_s = min((each.when() for each in events), default=self.time())
        skipped_s = next_s - lead_s - self.time()
        if skipped_s > 0:
            self._skipped_s += skipped_s
            self._skips.append((self.time(), skipped_s))
            for each in events:
                each._when = each.when() - skipped_s  # type: ignore[attr-defined]
            heapq.heapify(scheduled)

    def run_soon(self, handles: Sequence[asyncio.Handle]) -> None:
        """Handles that were due while their process was frozen."""
        vars(self)["_ready"].extend(handles)

    def _process_events(self, _: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """There is no other thread that would have to wake this loop."""

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = super().call_at(when, callback, *args, context=context)
        timer.__class__ = self.timer
        return timer

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        handle.__class__ = self.handle
        return handle

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """The process may be killed before the call, and between the call and its result."""
        future: asyncio.Future[T] = self.create_future()

        def call() -> None:
            try:
                require_alive()
                outcome: T | BaseException = func(*args)
            except BaseException as error:
                outcome = error
            self.call_later(self._delay_s(), finish, outcome)

        def finish(outcome: T | BaseException) -> None:
            if future.done():
                return
            if isinstance(outcome, asyncio.CancelledError):
                future.cancel()
            elif isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.call_later(self._delay_s(), call)
        return future

    def _delay_s(self) -> float:
        process = RUNNING.get()
        return self._rng.expovariate(1 / (process.thread_s if process else THREAD_S))
