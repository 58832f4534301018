"""Worker processes: how they start, and how they report errors."""

import sys
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

from joulie_bus.errors import JoulieError, NotInTheLog
from joulie_bus.runtime import logging


def worker_pool(count: int, module: str) -> ProcessPoolExecutor:
    """Forks from a fresh process that has imported the module once.

    A fork of this process would inherit the locks and connections of its threads. Libraries of
    macOS do not survive a fork, so each worker imports the module itself there.
    """
    context = get_context("forkserver" if sys.platform == "linux" else "spawn")
    context.set_forkserver_preload([module])  # without effect if the fork server runs
    return ProcessPoolExecutor(count, context)


@contextmanager
def worker_process(part: str) -> Generator[None, None, None]:
    """Wraps the work of one worker: logs to the console and raises only errors that pickle."""
    logging.configure("warning", "console", part)
    try:
        yield
    except JoulieError as error:  # most of our errors do not pickle; their text does
        raise NotInTheLog(str(error)) from None
