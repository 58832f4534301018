"""Tasks without which a component is not what it claims to be, and what follows from a failure.

`vital` runs one of them, `living` runs it beside a block. A task that fails, or returns, either
ends its component with an error, or is started again with increasing pauses while the component
reports not ready. Each failure is one log line with the name of the task.
"""

import asyncio
import contextlib
import enum
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from typing import NamedTuple

from joulie_bus.core.backoff import Backoff
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import background

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
STEADY_S = 1.0  # a task that has run again for so long counts as restarted
log = get_logger("tasks")
Work = Callable[[], Awaitable[None]]


class OnFailure(enum.StrEnum):
    ENDS = "ends"  # the component ends with an error, or the task that this one is part of fails
    RESTARTS = "restarts"  # the task is started again; until then the component is not ready


class _Row(NamedTuple):
    title: str
    on_failure: OnFailure
    components: tuple[str, ...]


_ENDS, _RESTARTS = OnFailure.ENDS, OnFailure.RESTARTS
_WITH_VIEW = ("extender", "operator", "console", "simulator", "shadow")


class VitalTask(enum.Enum):
    """All of them, with the components in which they run; docs/contributing/tasks.md lists them."""

    RESEND = _Row("resend", _RESTARTS, ("projector", "ledger", *_WITH_VIEW, "agent"))
    PULL = _Row("pull", _ENDS, ("projector", "console"))
    VIEW = _Row("view", _RESTARTS, _WITH_VIEW)

    PROJECT = _Row("project", _ENDS, ("projector",))
    DECISIONS = _Row("decisions", _ENDS, ("projector",))
    HEADS = _Row("heads", _ENDS, ("projector",))
    OUTCOMES = _Row("outcomes", _ENDS, ("projector",))
    LEASE = _Row("lease", _ENDS, ("projector",))
    LAG = _Row("lag", _RESTARTS, ("projector",))
    BEAT = _Row("beat", _ENDS, ("projector",))
    MISSING = _Row("missing", _RESTARTS, ("projector",))
    COPIES = _Row("copies", _RESTARTS, ("projector",))
    TRIM = _Row("trim", _RESTARTS, ("projector",))
    FREE_SPACE = _Row("free-space", _RESTARTS, ("projector",))
    WITNESSES = _Row("witnesses", _RESTARTS, ("projector",))
    KEPT_HEADS = _Row("kept-heads", _RESTARTS, ("projector",))

    SHIP = _Row("ship", _RESTARTS, ("extender", "shadow"))
    PROMISES = _Row("promises", _RESTARTS, ("extender", "shadow"))
    SPOOL = _Row("spool", _RESTARTS, ("extender",))
    SNAPSHOT = _Row("snapshot", _RESTARTS, ("extender",))
    CLAIMS = _Row("claims", _RESTARTS, ("extender",))
    ACCEPT = _Row("accept", _RESTARTS, ("extender", "admission"))
    SWEEP = _Row("sweep", _RESTARTS, ("extender", "admission"))
    CERTIFICATES = _Row("certificates", _RESTARTS, ("extender", "admission"))

    PLAN = _Row("plan", _ENDS, ("operator",))
    WATCH = _Row("watch", _ENDS, ("operator", "admission"))
    APPLY = _Row("apply", _RESTARTS, ("operator",))
    NOMINATE = _Row("nominate", _RESTARTS, ("operator",))
    GPU_STATUS = _Row("gpu-status", _RESTARTS, ("operator",))
    CAP_ORDERS = _Row("cap-orders", _RESTARTS, ("operator",))
    INVENTORY = _Row("inventory", _RESTARTS, ("operator",))
    POD_EVENTS = _Row("pod-events", _RESTARTS, ("operator",))
    EVICT = _Row("evict", _RESTARTS, ("operator",))
    RESIZE = _Row("resize", _RESTARTS, ("operator",))
    SWITCH = _Row("switch", _RESTARTS, ("operator",))
    FACILITY = _Row("facility", _RESTARTS, ("operator",))
    GRID = _Row("grid", _RESTARTS, ("operator",))
    POWER = _Row("power", _RESTARTS, ("operator",))

    TAIL = _Row("tail", _ENDS, ("console",))
    POLL = _Row("poll", _ENDS, ("console",))
    HTTP = _Row("http", _ENDS, ("console",))
    NOTIFY = _Row("notify", _RESTARTS, ("console",))
    DELIVER = _Row("deliver", _RESTARTS, ("console",))
    TRACES = _Row("traces", _RESTARTS, ("console",))

    SAMPLE = _Row("sample", _RESTARTS, ("agent",))
    LIMITS = _Row("limits", _RESTARTS, ("agent-caps",))
    ORDERS = _Row("orders", _RESTARTS, ("agent-caps",))

    LEDGER = _Row("ledger", _RESTARTS, ("ledger",))
    SAVINGS = _Row("savings", _RESTARTS, ("ledger",))
    ARCHIVE = _Row("archive", _RESTARTS, ("archive",))
    SHADOW = _Row("shadow", _RESTARTS, ("shadow",))

    PUBLISH = _Row("publish", _ENDS, ("simulator",))
    MEASURE = _Row("measure", _ENDS, ("simulator",))
    ROOM = _Row("room", _ENDS, ("simulator",))
    SCHEDULE = _Row("schedule", _ENDS, ("simulator",))

    COMPONENT = _Row("component", _RESTARTS, ("up", "demo"))
    BROKER = _Row("broker", _RESTARTS, ("up", "demo"))
    DISK = _Row("disk", _RESTARTS, ("up", "demo"))

    def __str__(self) -> str:
        return self.value.title

    @property
    def on_failure(self) -> OnFailure:
        return self.value.on_failure


class TaskEnded(Exception):
    """A task ended without an error although it must run as long as its component."""


_restarts: ContextVar[str] = ContextVar("_restarts", default="")  # the task around this one
_failed: dict[object, str] = {}  # one entry per task that is to be restarted: its name
_callbacks: list[Callable[[str], None]] = []


def why_not_ready() -> str:
    """Names the tasks of this process that have failed and do not run again yet; empty if none."""
    names = sorted(set(_failed.values()))
    return f"failed and is restarted: {', '.join(names)}" if names else ""


@contextlib.contextmanager
def reporting_ends(callback: Callable[[str], None]) -> Generator[None, None, None]:
    """Within the block `callback` gets the name of a task whose failure ends the component."""
    _callbacks.append(callback)
    try:
        yield
    finally:
        _callbacks.remove(callback)


def living(
    task: VitalTask, work: Work, about: str = ""
) -> contextlib.AbstractAsyncContextManager["asyncio.Task[None]"]:
    """Runs a task beside the block. If it ends its component, the block is cancelled and raises."""
    return background(vital(task, work, about), str(task))


async def vital(task: VitalTask, work: Work, about: str = "") -> None:
    """Runs until cancelled. `work` is called for each start; `about` distinguishes tasks of one
    kind."""
    if task.on_failure is OnFailure.ENDS:
        await _run_once(task, work, about)
        return
    _restarts.set(str(task))
    backoff, run = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), _Run(str(task))
    with contextlib.closing(run):
        while True:
            run.starts()
            try:
                await _attempt(task, work)
            except Exception as error:
                if run.failed() > LONGEST_PAUSE_S:
                    backoff.succeeded()
                pause_s = backoff.failed()
                _report(task, about, error, f"it is restarted in {pause_s:g} s")
                await asyncio.sleep(pause_s)


async def _run_once(task: VitalTask, work: Work, about: str) -> None:
    try:
        await _attempt(task, work)
    except Exception as error:
        around = _restarts.get()
        if not _is_named(error):
            error.add_note(f"in the task {task}")
            _report(task, about, error, f"{around} fails, too" if around else "the component ends")
        for callback in () if around else list(_callbacks):
            callback(str(task))
        raise


async def _attempt(task: VitalTask, work: Work) -> None:
    """Raises if the work ends by itself. Libraries cancel it, too, and swallow cancellations."""
    try:
        await work()
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        raise TaskEnded("a cancellation came from elsewhere") from error
    if _is_cancelled():
        raise asyncio.CancelledError
    raise TaskEnded("it returned")


def _is_cancelled() -> bool:
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


def _report(task: VitalTask, about: str, error: Exception, what: str) -> None:
    metrics.TASK_FAILURES.labels(task=str(task)).inc()
    fields = {"about": about} if about else {}
    why = f"{type(error).__name__}: {error}"
    log.error("task_failed", task=str(task), **fields, why=why, what=what, exc_info=error)


def _is_named(error: BaseException) -> bool:
    """Whether a task within this one has reported the same failure."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_named, error.exceptions))
    return any(note.startswith("in the task ") for note in getattr(error, "__notes__", ()))


class _Run:
    """Keeps the entry of one restarted task in `_failed`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._steady: asyncio.TimerHandle | None = None
        self._started_at = 0.0

    def starts(self) -> None:
        self._started_at = self._loop.time()
        self._steady = self._loop.call_later(STEADY_S, _failed.pop, self, None)

    def failed(self) -> float:
        """Returns the seconds for which it ran."""
        self._cancel_timer()
        _failed[self] = self._name
        return self._loop.time() - self._started_at

    def close(self) -> None:
        self._cancel_timer()
        _failed.pop(self, None)

    def _cancel_timer(self) -> None:
        if self._steady is not None:
            self._steady.cancel()
