"""What nodes are, in columns: labels, taints, what they can hold."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from joulie_projections.twin.arrays import Bools, Ints
from joulie_simulator.kube_scheduler.objects import Node, Taint
from joulie_simulator.kube_scheduler.requests import whole_amounts
from joulie_simulator.kube_scheduler.selectors import Requires

NAME = "metadata.name"  # the one field of a node that affinity can ask for
ABSENT = -1


class Codes(NamedTuple):
    """A label in numbers: the place of each node's value among `values`, or ABSENT."""

    code: Ints
    values: Sequence[str]

    @property
    def is_set(self) -> Bools:
        return self.code >= 0

    def sums(self, counts: Ints, nodes: Bools) -> Ints:
        """The sum of `counts` over these nodes for each value."""
        on = nodes & self.is_set
        found = np.bincount(self.code[on], weights=counts[on], minlength=len(self.values))
        return found.astype(np.int64)

    def present(self, nodes: Bools) -> Bools:
        """Which values these nodes have."""
        found = np.zeros(len(self.values), np.bool_)
        found[self.code[nodes & self.is_set]] = True
        return found

    def of_node(self, per_value: Ints) -> Ints:
        """What belongs to the value of each node; 0 for nodes without one."""
        return np.append(per_value, 0)[self.code]


class NodeColumns:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self.names = [node.metadata.name for node in nodes]
        self.rows = {name: row for row, name in enumerate(self.names)}
        self.size = len(nodes)
        self._labels = [node.metadata.labels or {} for node in nodes]
        self.unschedulable: Bools = np.array(
            [bool(node.spec.unschedulable) for node in nodes], np.bool_
        )
        taints = [tuple(node.spec.taints or ()) for node in nodes]
        self.taint_sets: Sequence[tuple[Taint, ...]] = list(dict.fromkeys(taints))
        places = {each: place for place, each in enumerate(self.taint_sets)}
        self._taint_set: Ints = np.array([places[each] for each in taints], np.int64)
        self._codes: dict[str, Codes] = {}
        self._masks: dict[Requires, Bools] = {}
        self._allocatable = [
            whole_amounts(node.status.allocatable or {}, f"node {node.metadata.name}")
            for node in nodes
        ]

    @cached_property
    def all(self) -> Bools:
        return np.ones(self.size, np.bool_)

    def allocatable(self, resource: str) -> Ints:
        return np.array([each.get(resource, 0) for each in self._allocatable], np.int64)

    def by_taints(self, values: Sequence[int]) -> Ints:
        """The value of each node, by the set of its taints."""
        return np.array(values, np.int64)[self._taint_set]

    def codes(self, key: str) -> Codes:
        found = self._codes.get(key)
        if found is None:
            found = self._codes[key] = self._coded(key)
        return found

    def _coded(self, key: str) -> Codes:
        texts = self.names if key == NAME else [labels.get(key) for labels in self._labels]
        values = list(dict.fromkeys(text for text in texts if text is not None))
        places: dict[str | None, int] = {text: place for place, text in enumerate(values)}
        return Codes(np.array([places.get(text, ABSENT) for text in texts], np.int64), values)

    def admitted(self, requires: Requires) -> Bools:
        """Nodes whose label meets the requirement."""
        found = self._masks.get(requires)
        if found is None:
            codes = self.codes(requires.key)
            values = [*map(requires.admits, codes.values), requires.admits(None)]
            found = self._masks[requires] = np.array(values, np.bool_)[codes.code]
        return found
