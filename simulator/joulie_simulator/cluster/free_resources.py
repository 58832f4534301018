"""Capacity and free resources of the nodes in columns, one row per node."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from joulie_simulator.cluster.kube_arithmetic import Use
from joulie_simulator.hardware.shapes import Shape
from joulie_simulator.workload.workload import Job

MIB_PER_GIB = 1024


class FreeResources:
    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._milli = np.array([shape.cores * 1000 for shape in shapes], np.int64)
        self._mib = np.array([shape.memory_gib * MIB_PER_GIB for shape in shapes], np.int64)
        self._free_milli, self._free_mib = self._milli.copy(), self._mib.copy()
        self._cards = np.array([shape.gpus for shape in shapes], np.int64)
        self._free_units = np.array([shape.units for shape in shapes], np.int64)
        self._is_awake = np.ones(len(shapes), np.bool_)

    def take(self, row: int, job: Job) -> None:
        self._book(row, job, -1)

    def give_back(self, row: int, job: Job) -> None:
        self._book(row, job, +1)

    def set_awake(self, row: int, *, awake: bool) -> None:
        self._is_awake[row] = awake

    def fitting(self, job: Job) -> npt.NDArray[np.intp]:
        """The rows of nodes that are awake and have enough free resources, in order."""
        fits = self._is_awake & (self._free_milli >= job.milli) & (self._free_mib >= job.memory_mib)
        if job.gpus:
            fits &= (self._free_units >= job.gpus) & (self._cards >= job.gpus)
        return np.flatnonzero(fits)

    def used(self, rows: Sequence[int], job: Job) -> tuple[Use, Use]:
        """Use of CPU and memory of these nodes if the job is placed there."""
        milli, mib = self._milli[rows], self._mib[rows]
        return (
            Use(milli - self._free_milli[rows] + job.milli, milli),
            Use(mib - self._free_mib[rows] + job.memory_mib, mib),
        )

    def _book(self, row: int, job: Job, sign: int) -> None:
        self._free_milli[row] += sign * job.milli
        self._free_mib[row] += sign * job.memory_mib
        self._free_units[row] += sign * job.gpus
