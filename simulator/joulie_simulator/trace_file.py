"""Sizes and durations from a file of Alibaba's public trace "openb" (cluster-trace-gpu-v2023).

Pods are drawn from it at the simulation's rate, not at their recorded times: the trace is a sample
of a larger cluster, and at its own rate it would keep one GPU in a hundred busy.
"""

import csv
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from joulie_bus.errors import BadTrace
from joulie_bus.runtime.system_errors import reason_of
from joulie_extender.gpu.shapes import CARD, Shape
from joulie_simulator.hardware.shapes import Machine
from joulie_simulator.workload.workload import Size, share_mb

T = TypeVar("T")
Row = Mapping[str, str | None]
COLUMNS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "qos", "deletion_time")
LATENCY_SENSITIVE = ("LS", "Guaranteed")
LONGEST_S = 7 * 86_400.0  # limit for services that never ended in the trace
UTILISATION = (0.3, 0.9)  # not part of the trace


# Of a list that is only packed; a list may stop here.
POD_COLUMNS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
NODE_COLUMNS = ("cpu_milli", "memory_mib", "gpu")


class Trace:
    def __init__(self, sizes: list[Size]) -> None:
        self._sizes = sizes

    @classmethod
    def of(cls, path: Path) -> "Trace":
        """Raises BadTrace with the file, the line and the mistake."""
        return cls(_read_file(path, COLUMNS, _size))

    def __len__(self) -> int:
        return len(self._sizes)

    def draw(self, chance: random.Random) -> Size:
        return chance.choice(self._sizes)._replace(utilisation=chance.uniform(*UTILISATION))


def machines_of(path: Path) -> list[Machine]:
    """The nodes of the trace. Raises BadTrace."""
    return _read_file(path, NODE_COLUMNS, _machine)


def shapes_of(path: Path) -> list[Shape]:
    """What the pods of the trace ask for, with the models that they allow. Raises BadTrace."""
    return _read_file(path, POD_COLUMNS, _shape)


def _read_file(path: Path, columns: Sequence[str], made: Callable[[Row], T]) -> list[T]:
    try:
        with path.open(newline="") as file:
            return _read(csv.DictReader(file), str(path), columns, made)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadTrace(str(path), reason_of(error)) from error


def _read(
    rows: Iterable[Row], where: str, columns: Sequence[str], made: Callable[[Row], T]
) -> list[T]:
    found = []
    for line, row in enumerate(rows, 2):
        missing = [name for name in columns if row.get(name) is None]
        if missing:
            raise BadTrace(f"{where}, line {line}", f"there is no column {missing[0]}")
        try:
            found.append(made(row))
        except ValueError as error:
            raise BadTrace(f"{where}, line {line}", str(error)) from error
    if not found:
        raise BadTrace(where, "there is nothing in it")
    return found


def _machine(row: Row) -> Machine:
    """A machine; rejects zero cores or memory, which scores divide by."""
    milli, memory = int(row["cpu_milli"] or 0), int(row["memory_mib"] or 0)
    if min(milli, memory) <= 0:
        raise ValueError("a node without cores or memory")
    return Machine(milli, memory, int(row["gpu"] or 0), model=row.get("model") or "")


def _shape(row: Row) -> Shape:
    cards, share = int(row["num_gpu"] or 0), int(row["gpu_milli"] or 0)
    if cards and not 0 < share <= CARD:
        raise ValueError(f"a pod asks for {share} milli of a card, not 1 to {CARD}")
    models = tuple(sorted(filter(None, (row.get("gpu_spec") or "").split("|"))))
    asked = Shape(int(row["cpu_milli"] or 0), int(row["memory_mib"] or 0), cards, share, models)
    return asked if cards else asked._replace(share=0, models=())


def _size(row: Row) -> Size:
    gpus = int(row["num_gpu"] or 0)
    began = float(row.get("scheduled_time") or row.get("creation_time") or 0)
    ended = float(row["deletion_time"] or began + LONGEST_S)
    return Size(
        kind=f"openb-{gpus}g",
        performance=row["qos"] in LATENCY_SENSITIVE,
        cores=int(row["cpu_milli"] or 0) / 1000,
        memory_mib=int(row["memory_mib"] or 0),
        gpus=gpus,
        gpu_mb=share_mb(int(row["gpu_milli"] or 0)) if gpus else 0,
        seconds=min(LONGEST_S, max(1.0, ended - began)),
        utilisation=0.0,
    )
