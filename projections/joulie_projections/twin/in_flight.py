"""Columns as if pods ran that were answered for and are not bound yet, as far as a view has it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from joulie_bus.events import InFlight
from joulie_projections.twin.arrays import Floats, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import (
    MAX_MEMORY_FACTOR,
    Coefficients,
    LoadWatts,
    modelled_w,
)

_GROUPS = ("pods", "new")  # all pods, and those that no reading includes


class _Hardware(NamedTuple):
    """Of the nodes in flight."""

    cores: Floats
    cpu_max_w: Floats
    gpus: Floats
    gpu_max_w: Floats


class TwinsInFlight:
    """What pods in flight take of their nodes."""

    def __init__(self, twin_columns: TwinColumns, nodes: Sequence[InFlight]) -> None:
        self._twin_columns = twin_columns
        self._rows: Ints = np.array([node.ordinal + 1 for node in nodes], np.int64)
        self._devices = {node.ordinal + 1: node.devices for node in nodes if node.devices}
        names = _Hardware._fields
        self._hardware = _Hardware(*(twin_columns.floats(name)[self._rows] for name in names))
        self._watts = self._load_w(nodes)

    def columns(self) -> TwinColumns:
        found = dict(self._twin_columns.columns)
        limits = self._limits_w()
        for group in _GROUPS:
            for part, watts, limit in zip(LoadWatts._fields, self._watts, limits, strict=True):
                name = f"{group}_{part}_w"
                column = found[name] = found[name].copy()
                column[self._rows] = np.minimum(column[self._rows] + watts, limit)
        cards = self._twin_columns.cards.taking(self._devices)
        return self._twin_columns.with_load(found, cards)

    def watts(self, rows: Ints, coefficients: Coefficients) -> Floats:
        """The modelled power of the pods in flight, by candidate."""
        whole = np.zeros(len(self._twin_columns.columns["at"]))
        whole[self._rows] = modelled_w(self._watts, coefficients)
        found: Floats = whole.take(rows)
        return found

    def _load_w(self, nodes: Sequence[InFlight]) -> LoadWatts:
        cores, cpu_w, _, gpu_w = self._hardware
        whole = np.where(cores > 0, cores, 1.0) * 1000
        loads = [
            (n.cpu_milli, n.warm_cpu_micro, n.gpu_standard_milli, n.gpu_performance_milli)
            for n in nodes
        ]
        cpu, warm, standard, performance = np.array(loads, np.float64).reshape(-1, 4).T
        return LoadWatts(
            cpu / whole * cpu_w,
            warm / (whole * 1000) * cpu_w,
            standard / 1000 * gpu_w,
            performance / 1000 * gpu_w,
        )

    def _limits_w(self) -> LoadWatts:
        """The rated power of the nodes."""
        _, cpu_w, gpus, gpu_w = self._hardware
        return LoadWatts(cpu_w, MAX_MEMORY_FACTOR * cpu_w, gpus * gpu_w, gpus * gpu_w)
