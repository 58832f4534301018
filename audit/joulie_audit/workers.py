"""Worker processes: how they start, how they report errors, and how they make many values."""

import gc
import os
import sys
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TypeVar

from joulie_bus.errors import JoulieError, NotInTheLog
from joulie_bus.runtime import logging

T = TypeVar("T")
R = TypeVar("R")


def worker_pool(count: int, module: str) -> ProcessPoolExecutor:
    """Forks from a fresh process that has imported the module once.

    A fork of this process would inherit the locks and connections of its threads. Libraries of
    macOS do not survive a fork, so each worker imports the module itself there.
    """
    context = get_context("forkserver" if sys.platform == "linux" else "spawn")
    context.set_forkserver_preload([module])  # without effect if the fork server runs
    return ProcessPoolExecutor(count, context)


def on_cores(of_task: Callable[[T], list[R]], tasks: Sequence[T], module: str) -> list[list[R]]:
    """One task after the other in each process; the results are in the order of the tasks.

    `module` is what each process imports first.
    """
    workers = min(len(tasks), os.cpu_count() or 1)
    if workers == 1:
        return [of_task(task) for task in tasks]
    with worker_pool(workers, module) as pool:
        return list(pool.map(of_task, tasks))


@contextmanager
def worker_process(part: str) -> Generator[None, None, None]:
    """Wraps the work of one worker: logs to the console and raises only errors that pickle."""
    logging.configure("warning", "console", part)
    try:
        yield
    except JoulieError as error:  # most of our errors do not pickle; their text does
        raise NotInTheLog(str(error)) from None


@contextmanager
def uncollected() -> Generator[None, None, None]:
    """Makes many values that all stay in half of the time: nothing is searched for garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
