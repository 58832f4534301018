"""The simulated cluster's books: which job runs where, and what fits. Pure."""

from collections.abc import Iterator

from joulie_simulator.shapes import Shape, shape_of
from joulie_simulator.workload import Job


class SimNode:
    def __init__(self, name: str, shape: Shape) -> None:
        self.name = name
        self.shape = shape
        self.jobs: dict[str, Job] = {}
        self.free_cores = float(shape.cores)
        self.free_gib = shape.memory_gib
        self.free_gpus = shape.gpus

    def fits(self, job: Job) -> bool:
        return (
            job.cores <= self.free_cores
            and job.memory_gib <= self.free_gib
            and job.gpus <= self.free_gpus
        )

    def take(self, job: Job) -> None:
        self.jobs[job.uid] = job
        self._book(job, -1)

    def release(self, uid: str) -> Job:
        job = self.jobs.pop(uid)
        self._book(job, +1)
        return job

    def least_allocated(self) -> float:
        """kube-scheduler's default preference: 0..100, more for what stays free."""
        cores = self.free_cores / self.shape.cores
        memory = self.free_gib / self.shape.memory_gib
        return (cores + memory) / 2 * 100

    def _book(self, job: Job, sign: int) -> None:
        self.free_cores += sign * job.cores
        self.free_gib += sign * job.memory_gib
        self.free_gpus += sign * job.gpus


class SimCluster:
    def __init__(self, size: int) -> None:
        shapes = [shape_of(number) for number in range(size)]
        self.nodes = {
            name: SimNode(name, shape)
            for number, shape in enumerate(shapes)
            for name in [f"{shape.prefix}-{number:04d}"]
        }
        self._start = 0

    def sample(self, job: Job) -> list[str]:
        """The candidates that kube-scheduler would send: fitting nodes, round robin, not all.

        Under 100 nodes all are looked at; above, 50 % less one per 125 nodes, but never under 100.
        """
        names = list(self.nodes)
        wanted = sample_size(len(names))
        found: list[str] = []
        looked = 0
        for name in self._from(names, self._start):
            looked += 1
            if self.nodes[name].fits(job):
                found.append(name)
                if len(found) == wanted:
                    break
        self._start = (self._start + looked) % max(1, len(names))
        return found

    def _from(self, names: list[str], start: int) -> Iterator[str]:
        yield from names[start:]
        yield from names[:start]


def sample_size(nodes: int) -> int:
    if nodes < 100:
        return nodes
    percentage = max(5, 50 - nodes // 125)
    return max(100, nodes * percentage // 100)
