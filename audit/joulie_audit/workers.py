"""Work that several processes share: how they are begun, and how one tells what was wrong."""

from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

from joulie_bus.errors import JoulieError, NotInTheLog
from joulie_bus.runtime import logging


def worker_pool(count: int) -> ProcessPoolExecutor:
    """Begun anew: a fork would take our threads' locks and connections along."""
    return ProcessPoolExecutor(count, get_context("spawn"))


@contextmanager
def worker_process(part: str) -> Generator[None, None, None]:
    """Around what one of them does."""
    logging.configure("warning", "console", part)
    try:
        yield
    except JoulieError as error:  # most of ours cannot be pickled; what they say can
        raise NotInTheLog(str(error)) from None
