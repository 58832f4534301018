"""What a term of a score is, and what it is computed from."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from joulie_bus.core.setting_fields import Before, NoSettings
from joulie_bus.events import PodAsk
from joulie_extender.terms.freshness import MEASURED, Freshness
from joulie_extender.terms.marginal_power import MarginalPower
from joulie_projections.twin.arrays import Bools, Floats, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import Coefficients

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)
T = TypeVar("T")
Amount = TypeVar("Amount", float, Floats)


class Nodes:
    """All nodes of a snapshot; what does not depend on a pod is computed once, into `kept`.

    Nothing that is kept with the columns refers to them: they are freed with their last reader, and
    not by a garbage collection.
    """

    def __init__(
        self,
        twin_columns: TwinColumns,
        freshness: Freshness,
        columns: "Mapping[str, NodeColumn]",
        settings: Any,
        kept: dict[object, Any] | None = None,
    ) -> None:
        self.twin_columns = twin_columns
        self.fresh, self.read, self.basis = freshness
        self._columns = columns
        self._settings = settings
        self._kept: dict[object, Any] = {} if kept is None else kept

    def column(self, name: str) -> Floats:
        """A column that a term declares, whichever term that is."""
        found: Floats | None = self._kept.get(name)
        if found is None:
            found = self._kept[name] = self._columns[name](self, self._settings)
        return found

    def once(self, compute: "Callable[[Nodes], T]") -> T:
        """The result of a function of these nodes alone."""
        if compute not in self._kept:
            self._kept[compute] = compute(self)
        found: T = self._kept[compute]
        return found


NodeColumn = Callable[[Nodes, Any], Floats]


class ClusterTerms(NamedTuple):
    """The terms that are the same for all candidates."""

    trend_w_per_min: float
    pressure: float


NO_CLUSTER_TERMS = ClusterTerms(0.0, 0.0)


class NodeTerms(NamedTuple):
    """What the terms need of all nodes, for one snapshot and one set of weights.

    Each column is computed when an answer first needs it: a formula needs half of them, the filter
    none, and most snapshots answer few requests.
    """

    nodes: Nodes
    summary: Callable[[Nodes], ClusterTerms]
    marginal_power: MarginalPower

    @property
    def basis(self) -> Ints:
        return self.nodes.basis

    @property
    def fresh(self) -> Bools:
        """Whether each twin is up to date."""
        return self.nodes.fresh

    @property
    def cluster(self) -> ClusterTerms:
        return self.nodes.once(self.summary)

    def of(self, name: str, rows: Ints) -> Floats:
        found: Floats = self.nodes.column(name).take(rows)
        return found


NO_NODES = TwinColumns.empty()
NO_NODE_TERMS = NodeTerms(
    Nodes(NO_NODES, Freshness(*(np.zeros(1, kind) for kind in (bool, bool, int))), {}, None),
    lambda _: NO_CLUSTER_TERMS,
    MarginalPower(NO_NODES, Coefficients()),
)


class TermInput:
    """A pod and its candidates; one value for each candidate in each column.

    Without the terms of the nodes, as for a score about cards alone, nothing is known of them.
    """

    def __init__(
        self,
        pod: PodAsk,
        twin_columns: TwinColumns,
        rows: Ints,
        node_terms: NodeTerms = NO_NODE_TERMS,
    ) -> None:
        self.pod = pod
        self.twin_columns = twin_columns
        self.rows = rows
        self.marginal_power = node_terms.marginal_power
        self.is_measured = True  # of all candidates: the common case
        self.values: dict[str, Floats] = {}  # of the terms that were computed before
        self.total: Floats  # the score so far
        self._node_terms = node_terms
        self._columns: dict[str, Floats] = {}
        self._kept: dict[object, Any] = {}
        if node_terms is not NO_NODE_TERMS:
            self.basis = node_terms.basis.take(rows)
            self.is_measured = int(self.basis.min(initial=MEASURED)) == MEASURED

    @property
    def cluster(self) -> ClusterTerms:
        return self._node_terms.cluster

    def column(self, name: str) -> Floats:
        """A column of the nodes that a term declares, of the candidates."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = self._node_terms.of(name, self.rows)
        return found

    def once(self, compute: "Callable[[TermInput, S], T]", settings: S) -> T:
        """The result of a function that several terms need."""
        if compute not in self._kept:
            self._kept[compute] = compute(self, settings)
        found: T = self._kept[compute]
        return found


class Term(ABC, Generic[S_contra]):
    """A term of a score."""

    name: ClassVar[str]  # in entries, which keep it for ever
    meaning: ClassVar[str]  # one sentence for the documentation
    unit: ClassVar[Literal["points", "percent", "watts", "GPUs"]] = (
        "points"  # of the value in an entry
    )
    head: ClassVar[str] = ""  # of its column in `joulie explain`; "" for none
    settings: ClassVar[type] = NoSettings
    # The values of its settings before the term existed, for entries that do not have them.
    before: ClassVar[Before] = ()
    # What it needs of the nodes, computed once per snapshot; other terms may use it, too.
    columns: ClassVar[tuple[tuple[str, NodeColumn], ...]] = ()
    is_summand: ClassVar[bool] = True  # else it is computed first, and others use its value
    is_after_clamp: ClassVar[bool] = False  # needs the sum of the others, from 0 to 100
    is_last: ClassVar[bool] = False  # needs the finished score, of nodes without readings, too

    @abstractmethod
    def value(self, asked: TermInput, settings: S_contra, /) -> Floats | None:
        """The value of each candidate, as entries have it; None if it does not apply."""

    def points(self, value: Amount, settings: S_contra, /) -> Amount:
        """What a value adds to the score."""
        del settings
        return value
