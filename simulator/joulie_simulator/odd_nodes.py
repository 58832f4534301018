"""Nodes of a running simulation that arrive late, fall silent, or leave, as those of a cluster do.

kube-scheduler has a late node from the start. Joulie knows it by the readings of its agent first,
without hardware, and then by its object. A silent node stays in the cluster without readings for a
time. A node that leaves takes its pods with it.
"""

from collections.abc import Iterable, Sequence

from joulie_bus.events import Fact, GpuSeen, HardwareDiscovered, NodeSeen

LATE_S = 8.0  # real time since the start, as the following
SILENT_FROM_S, SILENT_TO_S = 4.0, 424.0  # longer than readings count by default
LEAVES_S = 10.0


class OddNodes:
    """`each` nodes of each kind, the last ones."""

    def __init__(self, names: Sequence[str], each: int = 0) -> None:
        chosen = names[-3 * each :] if each else ()
        self._late = frozenset(chosen[0::3])
        self._silent = frozenset(chosen[1::3])
        self._leaving = chosen[2::3]
        self._later: list[Fact] = []
        self._has_left = False

    def known_at_start(self, facts: Iterable[Fact]) -> list[Fact]:
        """Without those of late nodes, which `arrived` has later."""
        found = list[Fact]()
        for fact in facts:
            is_late = _node_of(fact) in self._late
            (self._later if is_late else found).append(fact)
        return found

    def arrived(self, passed_s: float) -> list[Fact]:
        """The facts of late nodes, once."""
        if passed_s < LATE_S:
            return []
        facts, self._later = self._later, []
        return facts

    def left(self, passed_s: float) -> Sequence[str]:
        """The nodes that leave now, once."""
        if self._has_left or passed_s < LEAVES_S:
            return ()
        self._has_left = True
        return self._leaving

    def there(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if not (self._has_left and name in self._leaving)]

    def with_readings(self, names: Iterable[str], passed_s: float) -> list[str]:
        is_silent = SILENT_FROM_S <= passed_s < SILENT_TO_S
        return [name for name in self.there(names) if not (is_silent and name in self._silent)]


def _node_of(fact: Fact) -> str:
    return fact.node if isinstance(fact, NodeSeen | HardwareDiscovered | GpuSeen) else ""
