"""Worker processes: how they start, and how they report errors."""

from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

from joulie_bus.errors import JoulieError, NotInTheLog
from joulie_bus.runtime import logging


def worker_pool(count: int) -> ProcessPoolExecutor:
    """Starts fresh processes: a fork would inherit the locks and connections of our threads."""
    return ProcessPoolExecutor(count, get_context("spawn"))


@contextmanager
def worker_process(part: str) -> Generator[None, None, None]:
    """Wraps the work of one worker: logs to the console and raises only errors that pickle."""
    logging.configure("warning", "console", part)
    try:
        yield
    except JoulieError as error:  # most of our errors do not pickle; their text does
        raise NotInTheLog(str(error)) from None
