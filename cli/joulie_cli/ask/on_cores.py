"""Tasks of a simulation on all cores: one process for each, one task after the other in each."""

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from joulie_audit.workers import worker_pool

T = TypeVar("T")
R = TypeVar("R")


def on_cores(of_task: Callable[[T], list[R]], tasks: Sequence[T], module: str) -> list[list[R]]:
    """In the order of the tasks. `module` is what each process imports first."""
    workers = min(len(tasks), os.cpu_count() or 1)
    if workers == 1:
        return [of_task(task) for task in tasks]
    with worker_pool(workers, module) as pool:
        return list(pool.map(of_task, tasks))
