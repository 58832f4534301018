"""The watts that a pod would add to each node, by what it asks for. Pure.

Pods come in kinds, and many of a kind: what one of a kind adds to all nodes is worked out once, and
then only looked up, for as long as the hardware stays what it is.
"""

from collections import OrderedDict
from typing import NamedTuple, TypeVar

from joulie_bus.events import PodAsk
from joulie_projections.twin.arrays import Floats, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import Coefficients, Rated, marginal_w

KINDS = 16  # of pods, whose watts are kept for all nodes
STRANGERS = 64  # kinds that were seen once: most of them never come back
_RESTS_ON = ("hardware", "cores", "cpu_max_w", "gpus", "gpu_max_w")


V = TypeVar("V")


class _Kind(NamedTuple):
    """All of a pod that its watts rest on."""

    cpu_milli: int
    memory_bytes: int
    gpu_milli: int
    workload: str


class Marginals:
    """Of one hardware, by one set of coefficients. What is remembered changes no watt."""

    def __init__(self, twin_columns: TwinColumns, coefficients: Coefficients) -> None:
        self._columns = [twin_columns.columns[name] for name in _RESTS_ON]
        self._rated = twin_columns.rated()
        self._coefficients = coefficients
        self._kinds: OrderedDict[_Kind, Floats] = OrderedDict()
        self._strangers: OrderedDict[_Kind, None] = OrderedDict()

    def holds_for(self, twin_columns: TwinColumns) -> bool:
        """Boards share the columns that do not change."""
        rests_on = zip(_RESTS_ON, self._columns, strict=True)
        return all(twin_columns.columns[name] is column for name, column in rests_on)

    def of(self, pod: PodAsk, rows: Ints) -> Floats:
        kind = _Kind(pod.cpu_milli, pod.memory_bytes, pod.gpu_milli, pod.workload)
        known = self._kinds.get(kind)
        if known is not None:
            return known.take(rows)
        if kind not in self._strangers:
            _remember(self._strangers, kind, None, STRANGERS)
            rated = Rated._make(column.take(rows) for column in self._rated)
            return marginal_w(pod, rated, self._coefficients)
        del self._strangers[kind]
        watts = marginal_w(pod, self._rated, self._coefficients)
        _remember(self._kinds, kind, watts, KINDS)
        return watts.take(rows)


def _remember(kept: "OrderedDict[_Kind, V]", kind: _Kind, value: V, most: int) -> None:
    """The oldest goes."""
    kept[kind] = value
    if len(kept) > most:
        kept.popitem(last=False)
