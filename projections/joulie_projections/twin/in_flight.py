"""Columns as if pods ran that were answered for and are not bound yet, as far as a view has it."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from joulie_bus.events import InFlight
from joulie_projections.twin.arrays import Floats, Ints
from joulie_projections.twin.card_columns import Cards
from joulie_projections.twin.columns import Column, TwinColumns
from joulie_projections.twin.power import (
    MAX_MEMORY_FACTOR,
    Coefficients,
    LoadWatts,
    modelled_w,
)

_GROUPS = ("pods", "new")  # all pods, and those that no reading includes
_DAEMONS_ONLY = "daemons_only"
_PARTS = {f"{group}_{part}_w": part for group in _GROUPS for part in LoadWatts._fields}


class _Hardware(NamedTuple):
    """Of the nodes in flight."""

    cores: Floats
    cpu_max_w: Floats
    gpus: Floats
    gpu_max_w: Floats


class _WhenRead(dict[str, Column]):
    """Some columns are computed when they are read; a loop over all has only the others."""

    def __init__(self, known: Mapping[str, Column], compute: Callable[[str], Column]) -> None:
        super().__init__(known)
        self._compute = compute

    def __missing__(self, name: str) -> Column:
        found = self[name] = self._compute(name)
        return found


class TwinsInFlight:
    """What pods in flight take of their nodes."""

    def __init__(self, twin_columns: TwinColumns, nodes: Sequence[InFlight]) -> None:
        self._twin_columns = twin_columns
        self._rows: Ints = np.array([node.ordinal + 1 for node in nodes], np.int64)
        self._devices = {node.ordinal + 1: node.devices for node in nodes if node.devices}
        self._nodes = nodes

    def columns(self) -> TwinColumns:
        """Most formulas read few of them: each is computed when it is read."""
        columns = self._twin_columns.columns.items()
        kept = {name: at for name, at in columns if name not in _PARTS and name != _DAEMONS_ONLY}
        return self._twin_columns.with_load(_WhenRead(kept, self._column), self._cards)

    def _cards(self) -> Cards:
        return self._twin_columns.cards.taking(self._devices)

    def _column(self, name: str) -> Column:
        if name == _DAEMONS_ONLY:
            daemons_only = self._twin_columns.columns[name].copy()
            daemons_only[self._rows] = False
            return daemons_only
        return self._load(name)

    def _load(self, name: str) -> Floats:
        part, rows = _PARTS[name], self._rows
        column = self._twin_columns.floats(name).copy()
        watts, limit = getattr(self._watts, part), getattr(self._limits_w, part)
        column[rows] = np.minimum(column[rows] + watts, limit)
        return column

    def watts(self, rows: Ints, coefficients: Coefficients) -> Floats:
        """The modelled power of the pods in flight, by candidate."""
        whole = np.zeros(len(self._twin_columns.columns["at"]))
        whole[self._rows] = modelled_w(self._watts, coefficients)
        found: Floats = whole.take(rows)
        return found

    @cached_property
    def _hardware(self) -> _Hardware:
        columns = map(self._twin_columns.floats, _Hardware._fields)
        return _Hardware(*(column[self._rows] for column in columns))

    @cached_property
    def _watts(self) -> LoadWatts:
        cores, cpu_w, _, gpu_w = self._hardware
        whole = np.where(cores > 0, cores, 1.0) * 1000
        loads = [
            (n.cpu_milli, n.warm_cpu_micro, n.gpu_standard_milli, n.gpu_performance_milli)
            for n in self._nodes
        ]
        cpu, warm, standard, performance = np.array(loads, np.float64).reshape(-1, 4).T
        return LoadWatts(
            cpu / whole * cpu_w,
            warm / (whole * 1000) * cpu_w,
            standard / 1000 * gpu_w,
            performance / 1000 * gpu_w,
        )

    @cached_property
    def _limits_w(self) -> LoadWatts:
        """The rated power of the nodes."""
        _, cpu_w, gpus, gpu_w = self._hardware
        return LoadWatts(cpu_w, MAX_MEMORY_FACTOR * cpu_w, gpus * gpu_w, gpus * gpu_w)
