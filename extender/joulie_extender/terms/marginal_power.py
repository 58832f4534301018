"""The watts that a pod would add to each node, by its requests.

Many pods have the same requests: their watts are computed once for all nodes and then looked up,
until the hardware changes.
"""

from collections import OrderedDict
from typing import NamedTuple, TypeVar

from joulie_bus.events import PodAsk
from joulie_projections.twin.arrays import Floats, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import Coefficients, Rated, marginal_w

CACHED_SHAPES = 16  # shapes with cached watts
SHAPES_SEEN_ONCE = 64  # most of them never come back
_HARDWARE_COLUMNS = ("hardware", "cores", "cpu_max_w", "gpus", "gpu_max_w")


V = TypeVar("V")


class _PodShape(NamedTuple):
    """The properties of a pod that its watts depend on."""

    cpu_milli: int
    memory_bytes: int
    gpu_milli: int
    workload: str


class MarginalPower:
    """For one set of hardware columns and coefficients. The cache changes no result."""

    def __init__(self, twin_columns: TwinColumns, coefficients: Coefficients) -> None:
        self._columns = [twin_columns.columns[name] for name in _HARDWARE_COLUMNS]
        self._rated = twin_columns.rated()
        self._coefficients = coefficients
        self._watts: OrderedDict[_PodShape, Floats] = OrderedDict()
        self._seen_once: OrderedDict[_PodShape, None] = OrderedDict()

    def is_valid_for(self, twin_columns: TwinColumns) -> bool:
        """Whether these columns have the same hardware; unchanged columns are shared between
        snapshots.
        """
        columns = zip(_HARDWARE_COLUMNS, self._columns, strict=True)
        return all(twin_columns.columns[name] is column for name, column in columns)

    def of(self, pod: PodAsk, rows: Ints) -> Floats:
        shape = _PodShape(pod.cpu_milli, pod.memory_bytes, pod.gpu_milli, pod.workload)
        known = self._watts.get(shape)
        if known is not None:
            return known.take(rows)
        if shape not in self._seen_once:
            _keep(self._seen_once, shape, None, SHAPES_SEEN_ONCE)
            rated = Rated._make(column.take(rows) for column in self._rated)
            return marginal_w(pod, rated, self._coefficients)
        del self._seen_once[shape]
        watts = marginal_w(pod, self._rated, self._coefficients)
        _keep(self._watts, shape, watts, CACHED_SHAPES)
        return watts.take(rows)


def _keep(kept: "OrderedDict[_PodShape, V]", shape: _PodShape, value: V, most: int) -> None:
    """Adds an entry; evicts the oldest one."""
    kept[shape] = value
    if len(kept) > most:
        kept.popitem(last=False)
