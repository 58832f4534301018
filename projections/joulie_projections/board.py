"""The twins as columns: one row per node, one array per quantity, one immutable board per position.

The same board scores in the extender, in replay and in the simulator. A row is derived from its
node's state alone, so a board updated row by row equals one built from scratch.
"""

import math
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from joulie_projections.power import Rated, guessed_cpu_max_w, guessed_gpu_max_w
from joulie_projections.world import NodeState, Sample

PROFILE_LABEL = "joulie.io/power-profile"
MIN_TREND_SPAN_MS = 6_000  # two readings closer than this say nothing about a slope


class NodeClass(IntEnum):
    UNKNOWN = 0
    PERFORMANCE = 1
    ECO = 2
    DRAINING = 3


class Source(IntEnum):
    """Where a node's hardware figures come from."""

    NONE = 0
    ALLOCATABLE = 1  # guessed from what Kubernetes says can be allocated
    DISCOVERED = 2


class CoolingModel(NamedTuple):
    """Linear: watts against a reference node, plus what a warm room takes away."""

    reference_w: float = 4000.0  # 2 x EPYC 9654 + 8 x H100 NVL
    reference_share: float = 80.0
    ambient_c: float = 20.0
    baseline_c: float = 20.0
    per_degree: float = 0.5

    def stress(self, power_w: float) -> float:
        warmth = max(0.0, self.ambient_c - self.baseline_c) * self.per_degree
        return min(100.0, max(0.0, power_w / self.reference_w * self.reference_share + warmth))


class Twin(msgspec.Struct, frozen=True, kw_only=True):
    """One row: the twin of one node."""

    node_class: NodeClass
    eco_label: bool
    at: int
    sampled_at: int
    measured_w: float
    trend_w_per_min: float
    capped_w: float
    tdp_w: float
    cooling: float
    headroom: float  # predictedPowerHeadroomScore
    density: float
    cores: float
    cpu_max_w: float
    gpus: float
    gpu_max_w: float
    hardware: Source


class Hardware(NamedTuple):
    source: Source
    cores: float
    cpu_max_w: float
    gpus: float
    gpu_max_w: float


def hardware_of(node: NodeState) -> Hardware:
    """Discovered hardware first; else what Kubernetes can allocate, with cautious guesses."""
    found = node.hardware
    if found is not None:
        cpu_w = found.cpu_max_mw_per_socket * found.cpu_sockets / 1000
        return Hardware(
            Source.DISCOVERED,
            float(found.cpu_cores),
            cpu_w or guessed_cpu_max_w(found.cpu_cores),
            float(found.gpu_count),
            found.gpu_max_mw / 1000 or guessed_gpu_max_w(found.gpu_model),
        )
    if node.cpu_milli or node.gpus:
        cores = node.cpu_milli / 1000
        gpus = float(node.gpus)
        return Hardware(
            Source.ALLOCATABLE, cores, guessed_cpu_max_w(cores), gpus, guessed_gpu_max_w("")
        )
    return Hardware(Source.NONE, 0.0, 0.0, 0.0, 0.0)


def class_of(node: NodeState) -> NodeClass:
    if node.draining:
        return NodeClass.DRAINING
    match node.profile:
        case "performance":
            return NodeClass.PERFORMANCE
        case "eco":
            return NodeClass.ECO
        case _:
            return NodeClass.UNKNOWN


def twin_of(node: NodeState, cooling_model: CoolingModel = CoolingModel()) -> Twin:  # noqa: B008
    hardware = hardware_of(node)
    cpu_cap = 100 if node.cpu_cap_pct is None else node.cpu_cap_pct
    gpu_cap = 100 if node.gpu_cap_pct is None else node.gpu_cap_pct
    gpus_w = hardware.gpu_max_w * hardware.gpus
    capped_w = hardware.cpu_max_w * cpu_cap / 100 + gpus_w * gpu_cap / 100
    cooling = cooling_model.stress(capped_w)
    last = node.samples[-1] if node.samples else None
    return Twin(
        node_class=class_of(node),
        eco_label=node.labels.get(PROFILE_LABEL) == "eco",
        at=node.at,
        sampled_at=last.at if last else 0,
        measured_w=last.power_mw / 1000 if last else 0.0,
        trend_w_per_min=trend_w_per_min(node.samples),
        capped_w=capped_w,
        tdp_w=hardware.cpu_max_w + gpus_w,
        cooling=cooling,
        headroom=_headroom(cpu_cap, gpu_cap if hardware.gpus else cpu_cap, cooling),
        density=_density(hardware),
        cores=hardware.cores,
        cpu_max_w=hardware.cpu_max_w,
        gpus=hardware.gpus,
        gpu_max_w=hardware.gpu_max_w,
        hardware=hardware.source,
    )


def _headroom(cpu_cap_pct: int, gpu_cap_pct: int, cooling: float) -> float:
    return (cpu_cap_pct + gpu_cap_pct) / 200 * (1 - cooling / 100) * 100


def _density(hardware: Hardware) -> float:
    cores, gpus = min(1.0, hardware.cores / 192), min(1.0, hardware.gpus / 8)
    return (cores + gpus) / 2 * 100 if hardware.gpus else cores * 100


def trend_w_per_min(samples: tuple[Sample, ...]) -> float:
    """Slope of a least-squares line through smoothed readings: a wild one bends nothing.

    All sums are integers, so the result is the same in whatever order they are made.
    """
    if len(samples) < 2:
        return 0.0
    base = samples[0].at
    times = [(sample.at - base) // 1_000_000 for sample in samples]
    if times[-1] < MIN_TREND_SPAN_MS:
        return 0.0
    powers = _smoothed([sample.power_mw for sample in samples])
    n, sum_t, sum_p = len(times), sum(times), sum(powers)
    sum_tp = sum(t * p for t, p in zip(times, powers, strict=True))
    spread = n * sum(t * t for t in times) - sum_t * sum_t
    # mW per ms is W per s
    return (n * sum_tp - sum_t * sum_p) * 60 / spread if spread else 0.0


def _smoothed(values: list[int]) -> list[int]:
    """Medians of three. An end goes where its neighbours point, if it is wilder than that.

    Repeating the neighbour instead would flatten every slope, a short one most.
    """
    if len(values) < 4:
        return values  # too few to tell a wild one from a slope
    inner = [_median(*three) for three in zip(values, values[1:], values[2:], strict=False)]
    first = _median(values[0], inner[0], 3 * inner[0] - 2 * inner[1])
    last = _median(values[-1], inner[-1], 3 * inner[-1] - 2 * inner[-2])
    return [first, *inner, last]


def _median(one: int, two: int, three: int) -> int:
    return sorted((one, two, three))[1]


_COLUMNS: dict[str, type] = {
    "node_class": np.int8,
    "eco_label": np.bool_,
    "at": np.int64,
    "sampled_at": np.int64,
    "measured_w": np.float64,
    "trend_w_per_min": np.float64,
    "capped_w": np.float64,
    "tdp_w": np.float64,
    "cooling": np.float64,
    "headroom": np.float64,
    "density": np.float64,
    "cores": np.float64,
    "cpu_max_w": np.float64,
    "gpus": np.float64,
    "gpu_max_w": np.float64,
    "hardware": np.int8,
}

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Columns = dict[str, npt.NDArray[Any]]


class Board:
    """Immutable. Row 0 is nobody: what is asked about a node that we do not know."""

    def __init__(self, names: dict[str, int], columns: Columns, planned_at: int) -> None:
        self.rows = names  # node name -> row, of the nodes that are there
        self.columns = columns
        self.planned_at = planned_at
        self.derived: dict[object, object] = {}  # what others have worked out from this board

    @classmethod
    def empty(cls) -> "Board":
        blank: Columns = {name: np.zeros(1, dtype) for name, dtype in _COLUMNS.items()}
        return cls({}, blank, 0)

    @classmethod
    def of(cls, nodes: Mapping[str, NodeState], planned_at: int) -> "Board":
        return cls.empty().updated(list(nodes.items()), planned_at)

    def __len__(self) -> int:
        return len(self.rows)

    def floats(self, name: str) -> Floats:
        return self.columns[name]

    def ints(self, name: str) -> Ints:
        return self.columns[name]

    def updated(self, changes: Iterable[tuple[str, NodeState | None]], planned_at: int) -> "Board":
        """A new board with some rows derived anew; this one stays as it is.

        While no node comes, goes or moves, `rows` is the very same mapping: who has looked names
        up in it need not do so again.
        """
        rows = self.rows
        twins: list[tuple[int, Twin]] = []
        blanks: list[int] = []
        for name, node in changes:
            at = None if node is None else node.ordinal + 1
            left = rows.get(name)
            if left != at:
                rows = dict(rows) if rows is self.rows else rows
                _move(rows, name, at)
            # A node that went and came back between two boards has left its old row, too.
            if left is not None:
                blanks.append(left)
            if node is not None:
                twins.append((node.ordinal + 1, twin_of(node)))
        height = max((row for row, _ in twins), default=0) + 1
        columns = {name: _grown(column, height) for name, column in self.columns.items()}
        where = [row for row, _ in twins]
        for name, column in columns.items():
            column[blanks] = 0
            column[where] = [getattr(twin, name) for _, twin in twins]
        return Board(rows, columns, planned_at)

    def rated(self, at: Ints) -> Rated:
        """The hardware of some rows."""
        return Rated(
            cores=self.floats("cores")[at],
            cpu_max_w=self.floats("cpu_max_w")[at],
            gpus=self.floats("gpus")[at],
            gpu_max_w=self.floats("gpu_max_w")[at],
            known=self.columns["hardware"][at] != Source.NONE,
        )

    def updated_at(self) -> Ints:
        """When each twin was last recomputed: by a fact about it, or by the operator's tick."""
        at = self.ints("at")
        return np.where(at > 0, np.maximum(at, self.planned_at), 0)


def _move(rows: dict[str, int], name: str, at: int | None) -> None:
    rows.pop(name, None)
    if at is not None:
        rows[name] = at


def _grown(column: npt.NDArray[Any], height: int) -> npt.NDArray[Any]:
    if height <= len(column):
        return column.copy()
    grown = np.zeros(max(height, len(column)), column.dtype)
    grown[: len(column)] = column
    return grown


def mean(values: Floats) -> float:
    """The same whatever the order, because it is rounded once."""
    return math.fsum(values.tolist()) / len(values) if len(values) else 0.0
