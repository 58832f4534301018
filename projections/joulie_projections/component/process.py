"""How a process of Joulie runs until a signal arrives, and how an interactive command does."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from joulie_bus.errors import PortTaken
from joulie_bus.runtime import metrics
from joulie_bus.runtime.metrics import Probe, well
from joulie_bus.runtime.vital_tasks import reporting_ends, why_not_ready
from joulie_projections.component.ending import Ending, code_after
from joulie_projections.component.malloc import keep_memory
from joulie_projections.component.wiring import Wiring

T = TypeVar("T")


def serve_part(
    wires: Wiring,
    part: str,
    work: Awaitable[None],
    alive: Probe = well,
    ready: Probe = well,
    *,
    fast: bool = False,
) -> int:
    """Run a long-running process: serves its metrics and does its work until a signal arrives.

    `fast` selects uvloop, if it is installed, for parts with thousands of small requests.
    """
    keep_memory()
    ending = Ending()

    def is_ready() -> str:
        return ending.why or why_not_ready() or ready()

    try:
        metrics.serve(*wires.bus.metrics_addr, part, alive, is_ready)
    except PortTaken:
        if asyncio.iscoroutine(work):
            work.close()  # else Python warns that it was never awaited
        raise
    factory = _fast_loop() if fast else None
    with ending, reporting_ends(ending.on_failure), asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_until_cancelled(work, ending))
    return ending.code


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class Signalled(NamedTuple, Generic[T]):
    result: T
    code: int  # the exit code


def run_until_signalled(run: Callable[[asyncio.Event], Awaitable[T]]) -> Signalled[T]:
    """Run an interactive command: Ctrl-C and SIGTERM set an event for a clean shutdown."""
    codes = [0]

    async def guarded() -> T:
        stop = asyncio.Event()

        def on_signal(number: signal.Signals) -> None:
            codes.append(code_after(number))
            stop.set()

        _on_signals(on_signal)
        return await run(stop)

    result = asyncio.run(guarded())
    return Signalled(result, codes[-1])


async def _until_cancelled(part: Awaitable[None], ending: Ending) -> None:
    task = asyncio.ensure_future(part)

    def on_signal(number: signal.Signals) -> None:
        ending.on_signal(number)
        task.cancel()

    _on_signals(on_signal)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _on_signals(call: Callable[[signal.Signals], object]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, call, number)
