"""How many pods of a kind are on each node: counted once for each question, then kept up to date.

A question is which pods count; pods of one template ask the same.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from joulie_projections.twin.arrays import Ints
from joulie_simulator.kube_scheduler.terms import Among, Asked, Kind, Near


class Counted(NamedTuple):
    """Pods that are in all of these sets."""

    among: tuple[Among, ...]
    with_ending: bool = True

    def has(self, kind: Kind) -> bool:
        labels = dict(kind.labels)
        is_counted = self.with_ending or not kind.is_ending
        return is_counted and all(each.has(kind.namespace, labels) for each in self.among)


class PodCounts:
    """Of bound pods, one row per node."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._at: dict[Kind, dict[int, int]] = {}
        self._kinds_in: dict[str, list[Kind]] = defaultdict(list)
        self._answers: dict[Counted, Ints] = {}
        self._about: dict[Kind, list[Ints]] = {}  # the answers that a kind is part of

    def add(self, kind: Kind, row: int, pods: int) -> None:
        """A negative number takes pods away."""
        if kind not in self._at:
            self._learn(kind)
        rows = self._at[kind]
        rows[row] = rows.get(row, 0) + pods
        for answer in self._about[kind]:
            answer[row] += pods

    def _learn(self, kind: Kind) -> None:
        self._at[kind] = {}
        self._kinds_in[kind.namespace].append(kind)
        self._about[kind] = [one for asked, one in self._answers.items() if asked.has(kind)]

    def of(self, asked: Counted) -> Ints:
        """Not to be written to."""
        found = self._answers.get(asked)
        if found is None:
            found = self._answers[asked] = self._counted(asked)
        return found

    def _counted(self, asked: Counted) -> Ints:
        found = np.zeros(self._size, np.int64)
        for kind in self._possible(asked):
            if asked.has(kind):
                self._about[kind].append(found)
                for row, pods in self._at[kind].items():
                    found[row] += pods
        return found

    def _possible(self, asked: Counted) -> Iterator[Kind]:
        known = [each.namespaces for each in asked.among if each.namespaces is not None]
        names = known[0] if known else frozenset(self._kinds_in)
        for name in names:
            yield from self._kinds_in.get(name, ())


class Held:
    """The terms of bound pods that a new pod may meet, and how many pods on each node have them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._counts: dict[Near, Ints] = {}
        self._order: list[Near] = []
        self._met: dict[Kind, tuple[int, list[Near]]] = {}  # of the first so many terms

    def add(self, terms: tuple[Near, ...], row: int, pods: int) -> None:
        for term in terms:
            if term not in self._counts:
                self._counts[term] = np.zeros(self._size, np.int64)
                self._order.append(term)
            self._counts[term][row] += pods

    def met_by(self, pod: Asked) -> Iterator[tuple[Near, Ints]]:
        """The terms that the pod meets."""
        seen, found = self._met.get(pod.kind, (0, []))
        for term in self._order[seen:]:
            if term.among.has(pod.namespace, pod.labels):
                found.append(term)
        self._met[pod.kind] = len(self._order), found
        for term in found:
            yield term, self._counts[term]
