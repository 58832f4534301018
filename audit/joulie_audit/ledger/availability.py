"""When nodes took pods, by the log."""

from typing import NamedTuple

from joulie_bus.events import NodeGone, NodeSeen, SleepOrdered, WakeOrdered
from joulie_projections.state.state import NodeState


class Change(NamedTuple):
    at_ms: int
    node: str
    takes_pods: bool


class Availability:
    """A node takes pods while it is ready and schedulable, from an order to wake up on at the
    earliest if it was ordered to sleep. It takes none before it is seen."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._seen: dict[str, bool] = {}
        self._ordered: set[str] = set()
        self._takes: dict[str, bool] = {}

    def fold(self, fact: SleepOrdered | WakeOrdered | NodeSeen | NodeGone, at_ms: int) -> None:
        match fact:
            case SleepOrdered():
                self._ordered.add(fact.node)
            case WakeOrdered():
                self._ordered.discard(fact.node)
            case NodeSeen():
                self._seen[fact.node] = fact.ready and fact.schedulable
            case NodeGone():
                self._seen[fact.node] = False
        self._note(fact.node, at_ms)

    def begin(self, name: str, node: NodeState, at_ms: int) -> None:
        if node.power_state == "asleep":
            self._ordered.add(name)
        self._seen[name] = node.ready and node.schedulable
        self._note(name, at_ms)

    def _note(self, node: str, at_ms: int) -> None:
        takes = self._seen.get(node, False) and node not in self._ordered
        if takes != self._takes.get(node, False):
            self._takes[node] = takes
            self.changes.append(Change(at_ms, node, takes))
