"""The queue of jobs that fit nowhere: by shape, because two jobs of one shape fit alike."""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from operator import ge
from typing import NamedTuple

from joulie_simulator.energy.jobs import Job

Shape = tuple[int, int, float]  # cores, cards and memory


class Waiting(NamedTuple):
    number: int  # order of arrival
    minute: int
    job: Job


class Queue:
    def __init__(self) -> None:
        self._shapes: dict[Shape, deque[Waiting]] = {}
        self._count = 0

    def __len__(self) -> int:
        return sum(map(len, self._shapes.values()))

    def __iter__(self) -> Iterator[Waiting]:
        for each in self._shapes.values():
            yield from each

    def add(self, minute: int, job: Job) -> int:
        """Returns the number of the job."""
        self._count += 1
        waiting = Waiting(self._count, minute, job)
        self._shapes.setdefault((job.cores, job.gpus, job.memory), deque()).append(waiting)
        return self._count

    def offer(self, place: Callable[[Waiting], bool]) -> None:
        """Tries each job in order of arrival.

        After a failure no job of at least that shape is tried: later placements only take
        resources.
        """
        heads = [(each[0].number, shape) for shape, each in self._shapes.items() if each]
        heapq.heapify(heads)
        failed: list[Shape] = []
        while heads:
            _, shape = heapq.heappop(heads)
            if any(all(map(ge, shape, no)) for no in failed):
                continue
            jobs = self._shapes[shape]
            if not place(jobs[0]):
                failed.append(shape)
                continue
            jobs.popleft()
            if jobs:
                heapq.heappush(heads, (jobs[0].number, shape))
